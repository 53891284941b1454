"""The door: tells the API from the site, applies trouble, keeps the access log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.fakes.github import access
from tests.fakes.github.state import SeenRequest
from tests.fakes.github.trouble import Trouble

if TYPE_CHECKING:
    from tests.fakes.github.fake import FakeGitHub

PREFIX = "/api/v3"


class Front:
    """An ASGI app around two others."""

    def __init__(self, github: FakeGitHub, *, api: ASGIApp, site: ASGIApp) -> None:
        self._github = github
        self._api = api
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server runs with lifespan off"
        is_api = scope["path"].startswith(f"{PREFIX}/")
        path = scope["path"].removeprefix(PREFIX) if is_api else scope["path"]
        log = _Log(self._github, scope["method"], path, scope["query_string"].decode(), send)
        if is_api:
            log.headers = access.rate_headers(self._github)
            path = self._current_path(path)
        inner: ASGIApp = self._api if is_api else self._site
        inner_scope = dict(scope) | ({"root_path": PREFIX, "path": PREFIX + path} if is_api else {})
        trouble = self._github.troubles.take(log.method, log.path)
        try:
            if trouble is None:
                await self._answer(inner, inner_scope, receive, log)
            else:
                await self._in_trouble(trouble, inner, inner_scope, receive, log)
        finally:
            log.write()

    async def _answer(self, inner: ASGIApp, scope: Scope, receive: Receive, log: _Log) -> None:
        moved = self._moved(scope["path"].removeprefix(PREFIX))
        if moved:
            status = 301 if log.method == "GET" else 307
            await RedirectResponse(moved, status_code=status)(scope, receive, log.send)
            return
        await inner(scope, receive, log.send)

    async def _in_trouble(self, trouble: Trouble, inner: ASGIApp, scope: Scope, receive: Receive, log: _Log) -> None:
        if trouble.slow_s:
            await self._github.clock.sleep(trouble.slow_s)
            await inner(scope, receive, log.send)
            return
        if trouble.after_doing:
            await inner(scope, receive, _swallow)
        if trouble.status == 0 and self._github.transport is not None:
            raise httpx.ReadTimeout("no answer")
        body = trouble.body if trouble.body is not None else {"message": "Server Error"}
        content = body if isinstance(body, str | bytes) else json.dumps(body)
        response = Response(content, status_code=trouble.status or 504, media_type="application/json")
        response.headers.update(trouble.headers)
        await response(scope, receive, log.send)

    def _current_path(self, path: str) -> str:
        """`/repositories/{id}/…` is the path that outlives a rename."""
        head, _, rest = path.removeprefix("/repositories/").partition("/")
        if not path.startswith("/repositories/") or not head.isdigit():
            return path
        for repo in self._github.repos.values():
            if repo.id == int(head):
                return f"/repos/{repo.name}/{rest}"
        return path

    def _moved(self, path: str) -> str:
        """Where the API sends who uses the old name of a repository; empty when it is no old name."""
        parts = path.split("/", 4)
        if len(parts) < 5 or parts[1] != "repos":
            return ""
        repo = self._github.renamed.get(f"{parts[2]}/{parts[3]}".lower())
        return f"{self._github.api_url}/repositories/{repo.id}/{parts[4]}" if repo else ""


async def _swallow(_message: Message) -> None:
    """The answer is lost."""


class _Log:
    """Passes an answer on, with the rate-limit headers, and notes its status."""

    def __init__(self, github: FakeGitHub, method: str, path: str, query: str, send: Send) -> None:
        self.method = method
        self.path = path
        self.headers: dict[str, str] = {}
        self._github = github
        self._query = query
        self._send = send
        self._status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            known = {name for name, _ in message["headers"]}
            extra = [(k.encode(), v.encode()) for k, v in self.headers.items() if k.encode() not in known]
            message = {**message, "headers": [*message["headers"], *extra]}
        await self._send(message)

    def write(self) -> None:
        self._github.requests.append(SeenRequest(self.method, self.path, self._query, self._status))
        if self.method != "GET":
            self._github.touch()
