"""Git LFS: the batch API at the repository, and signed addresses that take no other credential."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.fakes.github import access
from tests.fakes.github.answers import Json, Refusal, not_found, read_json
from tests.fakes.github.state import Repo
from tests.fakes.lfs import pointer_of

if TYPE_CHECKING:
    from tests.fakes.github.fake import FakeGitHub

MEDIA_TYPE = "application/vnd.git-lfs+json"
BATCH_MAX = 100


def pointer(content: bytes) -> bytes:
    """What git holds in the place of the content."""
    return pointer_of(hashlib.sha256(content).hexdigest(), len(content))


def keep(repo: Repo, content: bytes) -> bytes:
    """The repository's host has it; its pointer."""
    repo.lfs[hashlib.sha256(content).hexdigest()] = content
    return pointer(content)


def routes(github: FakeGitHub) -> list[Route]:
    """Downloading only."""

    async def batch(request: Request) -> Response:
        repo = access.may_fetch(github, request, "{owner}/{repo}".format(**request.path_params))
        if request.headers.get("accept") != MEDIA_TYPE or request.headers.get("content-type") != MEDIA_TYPE:
            raise Refusal(406, "not the media type of git LFS")
        body = await read_json(request)
        if body["operation"] != "download" or len(body["objects"]) > BATCH_MAX:
            raise Refusal(422, "too much, or no download")
        objects = [_found(github, repo, one) for one in body["objects"]]
        return JSONResponse({"transfer": "basic", "objects": objects}, media_type=MEDIA_TYPE)

    async def media(request: Request) -> Response:
        if "authorization" in request.headers:
            raise Refusal(400, "Only one auth mechanism allowed")
        oid = request.path_params["oid"]
        if request.query_params.get("sig") != _signature(oid) or request.headers.get("x-lfs") != _signature(oid)[::-1]:
            raise Refusal(403, "no valid signature")
        content = next((repo.lfs[oid] for repo in github.repos.values() if oid in repo.lfs), None)
        if content is None:
            raise not_found()
        start = int(request.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        return Response(content[start:], status_code=206 if start else 200, media_type="application/octet-stream")

    return [
        Route("/{owner}/{repo}.git/info/lfs/objects/batch", batch, methods=["POST"]),
        Route("/lfs-media/{oid}", media, methods=["GET"]),
    ]


def _found(github: FakeGitHub, repo: Repo, asked: Json) -> Json:
    oid = asked["oid"]
    if oid not in repo.lfs:
        return {**asked, "error": {"code": 404, "message": "Object does not exist on the server"}}
    href = f"{repo.lfs_host or github.git_url}/lfs-media/{oid}?sig={_signature(oid)}"
    download = {"href": href, "header": {"X-Lfs": _signature(oid)[::-1]}, "expires_in": 3600}
    return {**asked, "authenticated": True, "actions": {"download": download}}


def _signature(oid: str) -> str:
    return hashlib.sha256(f"signed {oid}".encode()).hexdigest()
