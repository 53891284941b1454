"""The door: tells the API from the site, holds requests against the contract, applies trouble, keeps the access log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.fakes.github import record
from tests.fakes.github.contract import Asked, Told
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
        if scope["path"].startswith(f"{PREFIX}/"):
            await self._rest(scope, receive, send)
        else:
            await self._pages(scope, receive, send)

    async def _rest(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(PREFIX)
        current = self._current_path(path)
        body = await _whole(receive)
        if body is None:
            return
        asked = _asked(scope, current, body)
        record.asked(asked)
        inner_scope = {**scope, "root_path": PREFIX, "path": PREFIX + current}
        log = _Log(self._github, asked, path, inner_scope, send)
        trouble = self._github.troubles.take(asked.method, path)
        try:
            if trouble is None:
                await self._answer(self._api, inner_scope, _again(body, receive), log)
            else:
                await self._in_trouble(trouble, self._api, inner_scope, _again(body, receive), log)
        finally:
            log.write()

    async def _pages(self, scope: Scope, receive: Receive, send: Send) -> None:
        log = _Log(self._github, _asked(scope, scope["path"], b""), scope["path"], {}, send)
        try:
            await self._site(scope, receive, log.send)
        finally:
            log.write()

    async def _answer(self, inner: ASGIApp, scope: Scope, receive: Receive, log: _Log) -> None:
        moved = self._moved(scope["path"].removeprefix(PREFIX))
        if moved:
            status = 301 if scope["method"] == "GET" else 307
            await RedirectResponse(moved, status_code=status)(scope, receive, log.send)
            return
        log.keeps = True
        await inner(scope, receive, log.send)

    async def _in_trouble(self, trouble: Trouble, inner: ASGIApp, scope: Scope, receive: Receive, log: _Log) -> None:
        if trouble.slow_s:
            await self._github.clock.sleep(trouble.slow_s)
            await inner(scope, receive, log.send)
            return
        if trouble.cut:
            await inner(scope, receive, _Cut(log.send).send)
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


def _asked(scope: Scope, path: str, body: bytes) -> Asked:
    headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
    return Asked(
        method=scope["method"],
        path=path,
        query=scope["query_string"].decode(),
        body=body,
        content_type=headers.get("content-type", ""),
        user_agent=headers.get("user-agent", ""),
    )


async def _whole(receive: Receive) -> bytes | None:
    """None when whoever asks died in the middle: half a request is none."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return body


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, then whatever else happens on the connection."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> Message:
        message = next(messages, None)
        return await receive() if message is None else message

    return replay


async def _swallow(_message: Message) -> None:
    """The answer is lost."""


class _Cut:
    """The first half of the answer, as a proxy that breaks off sends it."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(name, value) for name, value in message["headers"] if name != b"content-length"]
            message = {**message, "headers": kept}
        elif message.get("body"):
            message = {**message, "body": message["body"][: len(message["body"]) // 2]}
        await self._send(message)


class _Log:
    """Passes an answer on, with the rate-limit headers, and notes its status."""

    def __init__(self, github: FakeGitHub, asked: Asked, path: str, scope: Scope, send: Send) -> None:
        self.keeps = False
        """The answer is GitHub's own, so it is held against the contract."""
        self._github = github
        self._asked = asked
        self._path = path
        self._scope = scope
        """Empty for what is no call of the API. The API writes into it which installation calls."""
        self._send = send
        self._status = 0
        self._type = ""
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            known = dict(message["headers"])
            self._type = known.get(b"content-type", b"").decode()
            limits = self._github.limits.headers(self._scope.get("installation", 0)) if self._scope else {}
            extra = [(k.encode(), v.encode()) for k, v in limits.items() if k.encode() not in known]
            message = {**message, "headers": [*message["headers"], *extra]}
        elif self.keeps:
            self._body += message.get("body", b"")
        await self._send(message)

    def write(self) -> None:
        if self.keeps:
            record.answered(self._asked, Told(self._status, self._body, self._type))
        self._github.requests.append(SeenRequest(self._asked.method, self._path, self._asked.query, self._status))
        if self._asked.method != "GET":
            self._github.touch()
