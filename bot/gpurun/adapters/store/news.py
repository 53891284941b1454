"""Waiting for the next commit without losing one."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar


class News:
    """A generation counter. Everything happens in the event loop.

    Each task remembers the generation it last looked at the store with, so that a commit between its look and its
    wait ends the wait at once. A child task starts with what its parent saw.
    """

    def __init__(self) -> None:
        self._generation = 0
        self._changed = asyncio.Event()
        self._seen: ContextVar[int] = ContextVar("gpurun_store_seen")

    def ring(self) -> None:
        """Something was committed."""
        self._generation += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def look(self) -> None:
        """The running task is about to look at the store."""
        self._seen.set(self._generation)

    async def wait(self, timeout_s: float) -> bool:
        """True when something was committed since this task last looked or waited; False on timeout."""
        seen = self._seen.get(self._generation)
        if self._generation == seen:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                return False
        self.look()
        return True
