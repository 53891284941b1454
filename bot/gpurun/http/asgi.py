"""The little of HTTP that the raw routes need: bounded bodies, one-piece answers, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from starlette.types import Receive, Scope, Send

TEXT = b"text/plain; charset=utf-8"


class Refusal(Exception):
    """Ends a request with this status and sentence."""

    def __init__(self, status: int, sentence: str, *, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(sentence)
        self.status = status
        self.body = sentence.encode() + b"\n"
        self.headers = tuple(headers)


class ClientGone(Exception):
    """The other side closed the connection before its request was whole."""


async def answer(
    send: Send,
    status: int,
    body: bytes,
    *,
    content_type: bytes = TEXT,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Sends a whole response."""
    own = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": own})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, refusal: Refusal) -> None:
    """Sends a refusal."""
    await answer(send, refusal.status, refusal.body, headers=refusal.headers)


def header(scope: Scope, name: bytes) -> list[bytes]:
    """Every value of the header `name` (lower case)."""
    return [value for key, value in scope["headers"] if key == name]


def sole_headers(scope: Scope, names: frozenset[bytes]) -> dict[bytes, bytes]:
    """Those of `names` (lower case) that occur exactly once, by name. One pass, for the hot path."""
    found: dict[bytes, bytes] = {}
    doubled: set[bytes] = set()
    for key, value in scope["headers"]:
        if key in names:
            if key in found:
                doubled.add(key)
            found[key] = value
    for key in doubled:
        del found[key]
    return found


def declared_length(scope: Scope) -> int | None:
    """`Content-Length`; None when the body is chunked. The server has checked its form."""
    values = header(scope, b"content-length")
    return length_of(values[0]) if values else None


def length_of(value: bytes) -> int | None:
    """A `Content-Length` as a number; None for what is none."""
    return int(value) if value.isdigit() and len(value) < 19 else None


async def read_body(
    scope: Scope, receive: Receive, *, limit: int, timeout_s: float, came: Callable[[int], None] = lambda _: None
) -> bytes:
    """The request's body. `came` hears of each piece's length and may refuse it.

    Raises: Refusal 413 as soon as it is known to be longer than `limit`, 408 when it did not come in time; ClientGone.
    """
    length = declared_length(scope)
    if length is not None and length > limit:
        raise _too_large(limit)
    return await read_undeclared(receive, limit=limit, timeout_s=timeout_s, came=came)


async def read_undeclared(
    receive: Receive, *, limit: int, timeout_s: float, came: Callable[[int], None] = lambda _: None
) -> bytes:
    """The same for a caller that has looked at `Content-Length`, or does not believe it."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _whole_body(receive, limit, came)
    except TimeoutError:
        raise Refusal(408, "The body did not arrive in time.") from None


async def _whole_body(receive: Receive, limit: int, came: Callable[[int], None]) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        came(len(piece))
        if len(body) + len(piece) > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return bytes(body + piece) if body else piece
        body += piece


def _too_large(limit: int) -> Refusal:
    return Refusal(413, f"The body is larger than {limit} bytes.")
