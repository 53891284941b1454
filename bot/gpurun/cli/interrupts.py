"""Ctrl-C, SIGTERM and a closed terminal, counted from the first moment of a command to its last."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from gpurun.domain.errors import GpurunError

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "a closed terminal"}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(GpurunError):
    """The command ends without a verdict of a run."""


class Interrupts:
    """How often somebody wanted the command to end."""

    def __init__(self) -> None:
        self._count = 0
        self.first = ""
        """What it was, for people."""
        self._more = anyio.Event()

    def add(self, what: str = "Ctrl-C") -> None:
        """Once more."""
        self.first = self.first or what
        self._count += 1
        self._more.set()
        self._more = anyio.Event()

    async def reach(self, count: int) -> None:
        """Returns when there were that many."""
        while self._count < count:
            await self._more.wait()

    @asynccontextmanager
    async def ending_at(self, count: int, message: str) -> AsyncIterator[None]:
        """Cuts the block off when there were that many. Raises: Interrupted with the message then."""
        cut_off = False

        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                nonlocal cut_off
                await self.reach(count)
                cut_off = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            yield
            cut_off = False
            tasks.cancel_scope.cancel()
        if cut_off:
            raise Interrupted(message)


@asynccontextmanager
async def listening() -> AsyncIterator[Interrupts]:
    """No signal ends the process inside, so that what it began is cleared away.

    What whoever started us has switched off stays so: `nohup` does, and shells for what they put in the background.
    """
    interrupts = Interrupts()
    wanted = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*wanted) as signals:

        async def count() -> None:
            async for number in signals:
                interrupts.add(_NAMES[number])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            yield interrupts
            tasks.cancel_scope.cancel()
