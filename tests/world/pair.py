"""Two bots on one PostgreSQL, of which one is halted (SIGSTOP) in the middle of its work, taken over, and thawed.

await pair.halted_at("attempt.create.after", for_s=80, after=lambda: world.comment("/gpurun smoke"))
...                     # longer than a lease: now its rows are the twin's
await pair.thaw()       # both are alive
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from gpurun.flow.worker import LEASE
from tests.world.bot import halting_at
from tests.world.deaths import Deaths
from tests.world.rows import end_idle_transactions
from tests.world.world import World

LONG_S = LEASE.total_seconds() + 5
"""A halt after which all leases are over."""


class Pair:
    """`time` is the world's. `really`: a halt lasts as long as it says, not as long as the clocks say."""

    def __init__(self, world: World, time: Deaths, *, really: bool = False) -> None:
        self.world = world
        self.time = time
        self.twin = world.bot.twin()
        self._really = really

    async def halted_at(
        self, failpoint: str, *, for_s: float, after: Callable[[], object] | None = None, **more: str
    ) -> None:
        """The bot, which must not be running, is halted there, and has been for so long when this returns.

        `after`: what makes it go there, once it answers. `more`: settings for this start of it.
        """
        self.world.bot.spawn(**halting_at(failpoint), **more)
        if after is not None:
            await self.world.bot.answers()
            after()
        await self.world.bot.halt()
        await self.lasts(for_s)

    async def lasts(self, seconds: float) -> None:
        """The twin lives when this returns."""
        if self._really:
            await self._twin_lives()
            await anyio.sleep(seconds)
            return
        self.time.pass_time(seconds)
        if seconds >= LEASE.total_seconds():
            end_idle_transactions(self.world.database)
        await self._twin_lives()

    async def _twin_lives(self) -> None:
        if not self.twin.alive:
            await self.twin.start()

    def thaw(self) -> None:
        """The bot goes on with what it was at."""
        self.world.bot.thaw()

    async def close(self) -> None:
        """Both have ended."""
        self.thaw()
        await self.world.bot.stop()
        await self.twin.stop()
