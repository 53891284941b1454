"""The HTTP face: the endpoints that clients of the hub use, with its headers and its errors.

Shapes and headers follow huggingface_hub 2.4 (`hf_api.py`, `file_download.py`, `utils/_http.py`), which the tests run
against this.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.fakes.hub.hub import FakeHub
from tests.fakes.hub.state import Model, SeenRequest, StoredFile

PIECE_BYTES = 64 * 1024


class Refusal(Exception):
    """An error answer of the hub."""

    def __init__(
        self, status: int, *, code: str = "", message: str = "", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        if code:
            self.headers["X-Error-Code"] = code
        if message:
            self.headers["X-Error-Message"] = message

    def response(self) -> Response:
        return JSONResponse({"error": str(self) or "refused"}, self.status, headers=self.headers)


@dataclass(frozen=True, slots=True)
class At:
    """A model at one of its commits."""

    model: Model
    revision: str

    @property
    def files(self) -> dict[str, StoredFile]:
        return self.model.commits[self.revision]

    @property
    def commit_header(self) -> dict[str, str]:
        claimed = self.revision if self.model.answers_as is None else self.model.answers_as
        return {"X-Repo-Commit": claimed} if claimed else {}


def create_app(hub: FakeHub) -> Starlette:
    """The hub and, on its second port, the store of large files."""
    face = _Face(hub)
    routes = [
        Route("/api/whoami-v2", face.route(face.whoami)),
        Route("/api/agent-harnesses", face.route(face.nothing)),
    ]
    at = "{revision}/{path:path}"
    for kind, folder in (("datasets", "/datasets"), ("models", "")):
        repo = f"/api/{kind}/{{owner}}/{{name}}"
        routes += [
            Route(repo, face.route(face.info)),
            Route(repo + "/revision/{revision:path}", face.route(face.info)),
            Route(repo + "/tree/{revision}", face.route(face.tree)),
            Route(f"{folder}/{{owner}}/{{name}}/resolve/{at}", face.route(face.resolve)),
            Route(f"/api/resolve-cache/{kind}/{{owner}}/{{name}}/{at}", face.route(face.small_file)),
            Route(f"/repos{folder}/{{owner}}/{{name}}/{at}", face.route(face.large_file)),
        ]
    return Starlette(routes=routes)


class _Face:
    def __init__(self, hub: FakeHub) -> None:
        self._hub = hub

    def route(self, answer: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        """Notes the request, then trouble, then the token, then the answer."""

        async def handle(request: Request) -> Response:
            token = _token(request)
            host, path = request.headers.get("host", ""), request.scope["path"]
            self._hub.requests.append(SeenRequest(request.method, host, path, token, request.headers.get("range")))
            try:
                self._raise_trouble(path)
                if token is not None and token not in self._hub.tokens and not path.startswith("/repos/"):
                    raise Refusal(401, message="Invalid credentials in Authorization header")
                response = answer(request)
                for part, told in self._hub.limits.items():
                    if part in path:
                        response.headers["RateLimit"] = told
                return response
            except Refusal as refusal:
                return refusal.response()

        return handle

    def whoami(self, request: Request) -> Response:
        if _token(request) is None:
            raise Refusal(401, message="Invalid username or password.")
        return JSONResponse({"type": "user", "name": "somebody"})

    def nothing(self, _: Request) -> Response:
        return JSONResponse({})

    def info(self, request: Request) -> Response:
        at = self._at(request)
        blobs = request.query_params.get("blobs") == "true"
        siblings = [_sibling(file, blobs=blobs) for file in at.files.values()]
        model = at.model
        shape: dict[str, object] = {
            "id": model.id.removeprefix("datasets/"),
            "sha": at.revision,
            "private": model.private,
            "gated": model.gated,
        }
        shape["siblings"] = siblings
        wanted = request.query_params.getlist("expand")
        return JSONResponse({key: shape[key] for key in ("id", *wanted)} if wanted else shape)

    def tree(self, request: Request) -> Response:
        at = self._at(request)
        recursive = request.query_params.get("recursive", "").lower() == "true"
        entries = [*_tree_entries(at.files, recursive=recursive), *at.model.extra_tree]
        if self._hub.has_xet:
            entries = [one | {"xetHash": "e" * 64} if "lfs" in one else one for one in entries]
        start = int(request.query_params.get("cursor", "0"))
        page = entries[start : start + self._hub.page_size]
        headers = {}
        if start + len(page) < len(entries):
            query = urlencode({**request.query_params, "cursor": start + len(page)})
            headers["Link"] = f'<{self._hub.url}{request.url.path}?{query}>; rel="next"'
        return JSONResponse(page, headers=headers)

    def resolve(self, request: Request) -> Response:
        at = self._at(request)
        self._let_in(request, at.model)
        file = _file(request, at)
        headers = at.commit_header
        if file.is_lfs:
            location = self._large_file_url(at, file)
            linked = {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
            return RedirectResponse(location, 302, headers=headers | linked | self._xet(file))
        if self._hub.redirects_small_files and request.method == "GET":
            repo = at.model.id if at.model.id.startswith("datasets/") else f"models/{at.model.id}"
            path = f"/api/resolve-cache/{repo}/{at.revision}/{quote(file.path)}"
            return RedirectResponse(path, 307, headers=headers)
        return self._bytes(request, at.model, file, headers)

    def _xet(self, file: StoredFile) -> dict[str, str]:
        auth = f"{self._hub.url}/api/models/xet-read-token"
        return {"X-Xet-Hash": file.sha256[::-1], "Link": f'<{auth}>; rel="xet-auth"'} if self._hub.has_xet else {}

    def small_file(self, request: Request) -> Response:
        at = self._at(request)
        self._let_in(request, at.model)
        return self._bytes(request, at.model, _file(request, at), at.commit_header)

    def large_file(self, request: Request) -> Response:
        """The store takes exactly one proof: a signed URL. With a token beside it, it refuses, as S3 does."""
        at = self._at_revision(request)
        file = _file(request, at)
        if "authorization" in request.headers:
            raise Refusal(400, message="Only one auth mechanism allowed")
        if request.query_params.get("X-Amz-Signature") != _signature(at, file):
            raise Refusal(403, message="SignatureDoesNotMatch")
        return self._bytes(request, at.model, file, {})

    def _large_file_url(self, at: At, file: StoredFile) -> str:
        query = urlencode({"X-Amz-Expires": 3600, "X-Amz-Signature": _signature(at, file)})
        return f"{self._hub.cdn_url}/repos/{at.model.id}/{at.revision}/{quote(file.path)}?{query}"

    def _raise_trouble(self, path: str) -> None:
        for trouble in self._hub.trouble:
            if trouble.part in path and trouble.times > 0:
                trouble.times -= 1
                raise Refusal(trouble.status, headers=trouble.headers)

    def _at(self, request: Request) -> At:
        """Hides a private model from who may not see it, as if it did not exist."""
        model = self._hub.models.get(_id(request))
        token = _token(request)
        if model is None or (model.private and not self._is_in(token, model)):
            raise Refusal(404 if token else 401, code="RepoNotFound", message="Repository not found")
        if model.disabled:
            raise Refusal(403, message="Access to this resource is disabled.")
        return self._at_revision(request)

    def _at_revision(self, request: Request) -> At:
        model = self._hub.models[_id(request)]
        revision = request.path_params.get("revision", "main")
        revision = model.main if revision == "main" else model.refs.get(revision, revision)
        starting = [commit for commit in model.commits if len(revision) >= 7 and commit.startswith(revision)]
        if len(starting) == 1:
            revision = starting[0]
        if revision not in model.commits:
            raise Refusal(404, code="RevisionNotFound", message=f"Invalid rev id: {revision}")
        return At(model, revision)

    def _let_in(self, request: Request, model: Model) -> None:
        token = _token(request)
        if model.gated and not self._is_in(token, model):
            message = f"Access to model {model.id} is restricted."
            raise Refusal(403 if token else 401, code="GatedRepo", message=message)

    def _is_in(self, token: str | None, model: Model) -> bool:
        return token is not None and model.id in self._hub.tokens.get(token, ())

    def _bytes(self, request: Request, model: Model, file: StoredFile, headers: dict[str, str]) -> Response:
        data = model.body(file)
        headers = headers | {"ETag": f'"{file.etag}"', "Accept-Ranges": "bytes"}
        status, start, stop = 200, 0, len(data)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if asked and not self._hub.ignores_range:
            start, stop = int(asked[1]), min(int(asked[2] or len(data) - 1) + 1, len(data))
            if start >= len(data):
                raise Refusal(416, headers={"Content-Range": f"bytes */{len(data)}"})
            status = 206
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        headers["Content-Length"] = str(stop - start)
        if request.method == "HEAD":
            return Response(status_code=status, headers=headers)
        body = self._body(request, model, file, data[start:stop])
        return StreamingResponse(body, status, headers=headers, media_type="application/octet-stream")

    async def _body(self, request: Request, model: Model, file: StoredFile, data: bytes) -> AsyncIterator[bytes]:
        cut, stall = model.cut_at.pop(file.path, None), model.stalled_at.get(file.path)
        stop = min(len(data) if end is None else end for end in (cut, stall))
        for at in range(0, stop, PIECE_BYTES):
            yield data[at : min(at + PIECE_BYTES, stop)]
        if stall is not None:
            while not await request.is_disconnected():
                await _disconnect(request)
        # A body shorter than its Content-Length: the server closes the connection.


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _id(request: Request) -> str:
    name = f"{request.path_params['owner']}/{request.path_params['name']}"
    return f"datasets/{name}" if "datasets" in request.scope["path"].split("/")[:4] else name


def _token(request: Request) -> str | None:
    value = request.headers.get("authorization")
    return value.removeprefix("Bearer ") if value is not None else None


def _file(request: Request, at: At) -> StoredFile:
    file = at.files.get(request.path_params["path"])
    if file is None:
        raise Refusal(404, code="EntryNotFound", message="Entry not found", headers=at.commit_header)
    return file


def _signature(at: At, file: StoredFile) -> str:
    return hashlib.sha256(f"{at.model.id}\n{at.revision}\n{file.path}".encode()).hexdigest()


def _sibling(file: StoredFile, *, blobs: bool) -> dict[str, object]:
    shape: dict[str, object] = {"rfilename": file.path}
    if blobs:
        shape |= {"size": file.size, "blobId": file.oid}
        if file.is_lfs:
            shape["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": file.pointer_size}
    return shape


def _tree_entries(files: dict[str, StoredFile], *, recursive: bool) -> list[dict[str, object]]:
    entries: dict[str, dict[str, object]] = {}
    for path, file in sorted(files.items()):
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            oid = hashlib.sha1(folder.encode(), usedforsecurity=False).hexdigest()
            entries.setdefault(folder, {"type": "directory", "path": folder, "oid": oid, "size": 0})
        entry: dict[str, object] = {"type": "file", "path": path, "oid": file.oid, "size": file.size}
        if file.is_lfs:
            entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": file.pointer_size}
        entries[path] = entry
    return [entry for path, entry in entries.items() if recursive or "/" not in path]
