"""Long answers whose bytes can turn out to be wrong while they flow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from gpurun.domain.errors import GpurunError, PinNotFound

log = structlog.get_logger()


class CutShort(Exception):
    """The answer had begun when its source failed. `__cause__` says why."""


async def send_flow(
    chunks: AsyncIterator[bytes],
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    status: int = 200,
    headers: Mapping[str, str],
) -> None:
    """Sends `chunks`; a source that fails before the second chunk still becomes an ordinary error.

    The last chunk leaves only when the source has ended well. When it fails later the connection is closed with the
    answer unfinished, so that nobody takes the bytes for whole.
    Raises: what the source raised at its start; PinNotFound also later, after the connection was spoilt.
    """
    first = [chunk async for chunk in _at_most_two(chunks)]
    response = StreamingResponse(_one_behind(first, chunks), status_code=status, headers=headers)
    try:
        await response(scope, receive, send)
    except CutShort as cut:
        log.warning("answer_cut_short", path=scope["path"], error=str(cut.__cause__))
        if isinstance(cut.__cause__, PinNotFound):
            raise cut.__cause__ from None
    finally:
        await _close(chunks)


async def _at_most_two(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for _ in range(2):
        try:
            yield await anext(chunks)
        except StopAsyncIteration:
            return


async def _one_behind(first: list[bytes], chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if not first:
        return
    for chunk in first[:-1]:
        yield chunk
    held = first[-1]
    try:
        async for chunk in chunks:
            yield held
            held = chunk
    except GpurunError as error:
        raise CutShort from error
    yield held


async def _close(chunks: AsyncIterator[bytes]) -> None:
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()
