"""Work in threads for callers that may be cancelled meanwhile."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import anyio

T = TypeVar("T")


@runtime_checkable
class _Closable(Protocol):
    def close(self) -> None: ...


async def finished(act: Callable[..., T], *args: object) -> T:
    """What it gives in a thread, for short work: a cancelled caller waits for its end, too.

    So nothing that the caller lets go is still in use, and what was opened has an owner: the caller, who gets it before
    he is cancelled. Asyncio's own `cancel`, which no scope holds back, closes it here.
    """
    future = asyncio.get_running_loop().run_in_executor(None, functools.partial(act, *args))
    with anyio.CancelScope(shield=True):
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            future.add_done_callback(_let_go)
            await asyncio.wait({future})
            raise
    return future.result()


def _let_go(future: asyncio.Future[T]) -> None:
    if not future.cancelled() and future.exception() is None and isinstance(given := future.result(), _Closable):
        given.close()
