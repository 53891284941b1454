"""The only door for the side effects of `flow`: outside calls with a timeout, and commits. Both pass failpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from gpurun.domain.errors import Transient
from gpurun.flow import failpoints
from gpurun.ports.store import Store, Tx

T = TypeVar("T")


async def call(edge: str, make: Callable[[], Awaitable[T]], *, timeout_s: float) -> T:
    """The answer of one call that leaves the process.

    Raises: Transient when there was none in `timeout_s` (it may have had its effect), and what the call raises.
    """
    failpoints.passing(edge, "before")
    try:
        with anyio.fail_after(timeout_s):
            answer = await make()
    except TimeoutError as error:
        raise Transient(f"{edge} did not answer in {timeout_s:g} s.") from error
    failpoints.passing(edge, "after")
    return answer


async def commit(store: Store, edge: str, fn: Callable[[Tx], T], *, durable: bool = True) -> T:
    """What `fn` returned, after its transaction is durable, or at least committed."""
    failpoints.passing(edge, "before")
    answer = await store.write(fn, durable=durable)
    failpoints.passing(edge, "after")
    return answer
