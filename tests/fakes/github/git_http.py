"""Git over http: the real `git http-backend` as a CGI program."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.fakes.github import access, lfs_http
from tests.fakes.github.answers import Refusal
from tests.fakes.github.gitrepo import ENVIRONMENT

if TYPE_CHECKING:
    from tests.fakes.github.fake import FakeGitHub

TIMEOUT_S = 30


def routes(github: FakeGitHub) -> list[Route]:
    """Fetching only: nobody pushes over http here."""

    async def refs(request: Request) -> Response:
        if request.query_params.get("service") != "git-upload-pack":
            raise Refusal(403, "fetching only")
        return await _run(github, request, "info/refs")

    async def upload_pack(request: Request) -> Response:
        return await _run(github, request, "git-upload-pack")

    return [
        Route("/{owner}/{repo}.git/info/refs", refs, methods=["GET"]),
        Route("/{owner}/{repo}.git/git-upload-pack", upload_pack, methods=["POST"]),
        *lfs_http.routes(github),
    ]


async def _run(github: FakeGitHub, request: Request, path: str) -> Response:
    name = "{owner}/{repo}".format(**request.path_params)
    repo = access.may_fetch(github, request, name)
    env = {
        "PATH": os.defpath,
        **ENVIRONMENT,
        "GIT_PROJECT_ROOT": str(repo.git.folder.parent),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": f"/{repo.git.folder.name}/{path}",
        "QUERY_STRING": request.url.query,
        "REQUEST_METHOD": request.method,
        "CONTENT_TYPE": request.headers.get("content-type", ""),
        "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
        "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
        "REMOTE_ADDR": "127.0.0.1",
    }
    process = await asyncio.create_subprocess_exec(
        "git", "http-backend", env=env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(TIMEOUT_S):
        output, _ = await process.communicate(await request.body())
    return _from_cgi(output)


def _from_cgi(output: bytes) -> Response:
    head, _, body = output.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
    status = int(headers.pop("Status", "200").split()[0])
    return Response(body, status_code=status, headers=headers)
