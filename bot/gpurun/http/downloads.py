"""Bytes that people download: never shown by a browser as something of ours, and resumed where they broke off."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import structlog
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from gpurun.domain.errors import GpurunError
from gpurun.http.asgi import header
from gpurun.http.outflow import send_flow

BYTES_HEADERS = {
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "x-robots-tag": "noindex",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}
"""Of everything that is no page of ours."""

log = structlog.get_logger()

_RANGE = re.compile(rb"bytes=([0-9]{1,15})?-([0-9]{1,15})?")


@dataclass(frozen=True, slots=True)
class Part:
    """From `start` up to before `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """An answer of chunks, as an endpoint returns it. A source that fails is a 500, or cuts short what has begun."""

    chunks: AsyncIterator[bytes]
    headers: Mapping[str, str]
    status: int = 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        try:
            await send_flow(self.chunks, scope, receive, send, status=self.status, headers=self.headers)
        except GpurunError:
            log.exception("download_not_served", path=scope["path"])
            sorry = PlainTextResponse("The server cannot read these bytes.\n", 500, BYTES_HEADERS)
            await sorry(scope, receive, send)


def attachment(name: str) -> str:
    """`content-disposition` of a file that is saved under `name`."""
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"


def file_headers(name: str, sha256: str) -> dict[str, str]:
    """Of a file with this hash, whole or in part (RFC 9530, `Repr-Digest`)."""
    digest = base64.b64encode(bytes.fromhex(sha256)).decode()
    return BYTES_HEADERS | {
        "content-type": "application/octet-stream",
        "content-disposition": attachment(name),
        "accept-ranges": "bytes",
        "etag": f'"{sha256}"',
        "repr-digest": f"sha-256=:{digest}:",
    }


def part_of(scope: Scope, *, size: int, etag: str) -> Part | None:
    """What `Range` asks for; None for all of it. Raises ValueError when there is nothing of it in the file.

    Several ranges at once, and a range of another file (`If-Range`), are answered with all of it, as RFC 9110 allows.
    """
    values, condition = header(scope, b"range"), header(scope, b"if-range")
    match = _RANGE.fullmatch(values[0]) if len(values) == 1 else None
    if match is None or (condition and condition[0].decode("latin-1") != etag):
        return None
    first, last = match[1], match[2]
    if first is None and last is None:
        return None
    if first is None:
        part = Part(max(0, size - int(last)), size)
    else:
        part = Part(int(first), size if last is None else min(int(last) + 1, size))
    if part.start >= part.end:
        raise ValueError("nothing of it is in the file")
    return part
