"""Artifacts for people and for `gpurun artifacts`: one file, all as an archive, and the manifest."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gpurun.domain.errors import Transient
from gpurun.domain.manifest import digest_of, write_manifest
from gpurun.domain.run import Attempt, Run
from gpurun.domain.stream import Artifact
from gpurun.http.downloads import BYTES_HEADERS, Flow, Part, attachment, file_headers, part_of
from gpurun.http.log_view import chosen
from gpurun.http.run_view import has_ended
from gpurun.http.services import HttpServices
from gpurun.ports.bytes import Blobs
from gpurun.ports.store import Tx

BLOCK = tarfile.BLOCKSIZE
NO_LONGER = "The bytes are not kept any more; path, size and sha256 are.\n"

Opened = Callable[[Request], Awaitable[tuple[Run, Attempt | None]]]
"""The run that the request's key opens. Raises HTTPException 404."""


class ArtifactPages:
    """The routes below a run's page."""

    def __init__(self, services: HttpServices, opened: Opened) -> None:
        self._services = services
        self._opened = opened

    def routes(self) -> list[Route]:
        """For the application's router."""
        base = "/runs/{run_id}/artifacts"
        return [
            Route(base + ".json", self.manifest),
            Route(base + "/{number:int}.json", self.manifest),
            Route(base + "/{number:int}.tar", self.archive),
            Route(base + "/{number:int}/{path:path}", self.file),
        ]

    async def manifest(self, request: Request) -> Response:
        """As it is hashed. The headers tell of which attempt it is, and whether more files may come."""
        run, attempt, artifacts = await self._asked(request)
        body = write_manifest(artifacts).encode()
        headers = BYTES_HEADERS | {
            "content-type": "application/jsonl; charset=utf-8",
            "content-disposition": attachment(f"{run.id}-{attempt.number}.json"),
            "etag": f'"{digest_of(body)}"',
            "x-gpurun-attempt": str(attempt.number),
            "x-gpurun-complete": "yes" if has_ended(run, attempt) else "no",
        }
        return Response(body, headers=headers)

    async def file(self, request: Request) -> Response | ASGIApp:
        """A file or the part that `Range` asks for, always as a download."""
        _, _, artifacts = await self._asked(request)
        path = request.path_params["path"]
        artifact = next((one for one in artifacts if one.path == path), None)
        if artifact is None:
            raise HTTPException(404)
        headers = file_headers(path.rpartition("/")[2], artifact.sha256)
        if not artifact.blob:
            return PlainTextResponse(NO_LONGER, 410, BYTES_HEADERS)
        try:
            part = part_of(request.scope, size=artifact.size, etag=headers["etag"])
        except ValueError:
            return Response(status_code=416, headers=headers | {"content-range": f"bytes */{artifact.size}"})
        status, start, end = (206, part.start, part.end) if part else (200, 0, artifact.size)
        headers["content-length"] = str(end - start)
        if part:
            headers["content-range"] = f"bytes {start}-{end - 1}/{artifact.size}"
        if request.method == "HEAD" or start == end:
            return Response(b"", status, headers=headers)
        blobs = self._services.blobs
        chunks = part_bytes(blobs, artifact, part) if part else whole_bytes(blobs, artifact)
        return Flow(chunks=chunks, status=status, headers=headers)

    async def archive(self, request: Request) -> Response | ASGIApp:
        """All files of the attempt in a folder, and the manifest beside it; nothing of it is held in memory."""
        run, attempt, artifacts = await self._asked(request)
        if not artifacts:
            raise HTTPException(404)
        if not all(one.blob for one in artifacts):
            return PlainTextResponse(NO_LONGER, 410, BYTES_HEADERS)
        tar = Archive(f"{run.id}-{attempt.number}", attempt.result_at or attempt.created_at, artifacts)
        headers = BYTES_HEADERS | {
            "content-type": "application/x-tar",
            "content-disposition": attachment(f"{tar.name}.tar"),
            "content-length": str(tar.size),
        }
        if request.method == "HEAD":
            return Response(b"", headers=headers)
        return Flow(chunks=tar.stream(self._services.blobs), headers=headers)

    async def _asked(self, request: Request) -> tuple[Run, Attempt, tuple[Artifact, ...]]:
        run, latest = await self._opened(request)
        number = request.path_params.get("number")

        def read(tx: Tx) -> tuple[Attempt | None, tuple[Artifact, ...]]:
            attempt = latest if number is None else chosen(tx.attempts(run.id), number)
            return attempt, tx.artifacts(attempt.id) if attempt else ()

        attempt, artifacts = await self._services.store.read(read)
        if attempt is None:
            raise HTTPException(404)
        return run, attempt, artifacts


class Spoilt(Transient):
    """The blob store has other bytes than it was given. The answer ends early, so nobody takes it for whole."""


async def whole_bytes(blobs: Blobs, artifact: Artifact) -> AsyncGenerator[bytes]:
    """The file, whose hash is looked at once more. Raises Spoilt behind the last chunk."""
    digest, size = hashlib.sha256(), 0
    async with aclosing(blobs.open(artifact.blob)) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            if size > artifact.size:
                break
            digest.update(chunk)
            yield chunk
    if size != artifact.size or digest.hexdigest() != artifact.sha256:
        raise Spoilt(f"{artifact.blob} is not what was stored.")


async def part_bytes(blobs: Blobs, artifact: Artifact, part: Part) -> AsyncGenerator[bytes]:
    """Bytes of the file. Raises Spoilt when it ends too soon; its hash is for the reader to compare."""
    left = part.end - part.start
    async with aclosing(blobs.open(artifact.blob, offset=part.start)) as chunks:
        async for chunk in chunks:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return
    raise Spoilt(f"{artifact.blob} is not what was stored.")


@dataclass(frozen=True, slots=True)
class Archive:
    """A tar (ustar, with pax headers for long and foreign names) whose size is known before its first byte."""

    name: str
    """Of the folder that everything is in."""
    at: datetime
    """When every file was changed last, as far as we know."""
    artifacts: tuple[Artifact, ...]
    _heads: tuple[bytes, ...] = field(init=False, repr=False)
    _manifest: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        manifest = write_manifest(self.artifacts).encode()
        top = [self._head(f"{self.name}.json", len(manifest)) + _padded(manifest)]
        heads = (self._head(f"{self.name}/{one.path}", one.size) for one in self.artifacts)
        object.__setattr__(self, "_manifest", b"".join(top))
        object.__setattr__(self, "_heads", tuple(heads))

    @property
    def size(self) -> int:
        """Bytes of the stream."""
        files = sum(_blocks(one.size) for one in self.artifacts)
        return len(self._manifest) + sum(map(len, self._heads)) + files + 2 * BLOCK

    async def stream(self, blobs: Blobs) -> AsyncGenerator[bytes]:
        """The manifest first. Raises Spoilt."""
        yield self._manifest
        for head, one in zip(self._heads, self.artifacts, strict=True):
            yield head
            if one.size:
                async with aclosing(whole_bytes(blobs, one)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                yield bytes(_blocks(one.size) - one.size)
        yield bytes(2 * BLOCK)

    def _head(self, name: str, size: int) -> bytes:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o644, int(self.at.timestamp())
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _padded(data: bytes) -> bytes:
    return data + bytes(_blocks(len(data)) - len(data))
