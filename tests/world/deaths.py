"""A bot that dies at one failpoint after the other; where it did goes into the table of the session.

    await deaths.at("run.pin.before", "run.pin.after")         # started anew after each, the next one armed; dead then
    await deaths.at(*FAILPOINTS, after=lambda: world.comment("/gpurun smoke"))

All that are left are armed at each start: the bot dies where it comes first, whatever the order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import anyio

from tests.services.death_table import tell
from tests.world.bot import dying_at
from tests.world.laws import Record, assert_laws
from tests.world.rows import let_leases_pass, undone
from tests.world.shifted import ShiftedClock, postgres_is_ahead
from tests.world.world import World

DEATH_WITHIN_S = 40.0
BEAT_S = 0.2


class Deaths:
    """Of one world."""

    def __init__(self, world: World, clock: ShiftedClock, database: str, story: str) -> None:
        self.world = world
        self.clock = clock
        self._database = database
        self._story = story
        self._died: list[str] = []

    async def at(self, *failpoints: str, after: Callable[[], object] | None = None) -> None:
        """The bot, which must not be running, is dead afterwards. `after`: once it answers for the first time."""
        left = list(failpoints)
        while left:
            self.world.bot.spawn(**dying_at(*left))
            if after is not None:
                await self.world.bot.answers()
                after()
                after = None
            self.note(await self._death(left))
            left.remove(self._died[-1])

    async def _death(self, left: list[str]) -> str:
        try:
            return await self.world.bot.death(within_s=DEATH_WITHIN_S)
        except TimeoutError:
            raise AssertionError(f"nobody passes {left}\n{self.world.story()}") from None

    @property
    def last(self) -> str:
        """Where it died last."""
        return self._died[-1]

    def note(self, failpoint: str) -> None:
        """A process died there."""
        self._died.append(failpoint)
        let_leases_pass(self.world.database)

    async def assert_laws(self) -> Record:
        """When everything is over. An attempt whose create came to nothing could show up for half an hour."""
        async with self.hurried(60):
            await self.world.until(lambda: None if undone(self.world.database) else True, "nothing undone")
        return await assert_laws(self.world)

    def all_is_well(self, promised: Iterable[str]) -> None:
        """At the end of the story: its deaths, which must be those that it promised, go into the table."""
        assert sorted(self._died) == sorted(promised)
        tell(self._died, self._database, self._story)

    def pass_time(self, seconds: float) -> None:
        """For bot, GitHub and database alike."""
        self.clock.advance(seconds)
        if "://" in self.world.database:
            postgres_is_ahead(self.world.database, self.clock.shift_s)

    @asynccontextmanager
    async def hurried(self, seconds: float) -> AsyncIterator[None]:
        """So many more pass with each fifth of a second."""

        async def hurry() -> None:
            while True:
                self.pass_time(seconds)
                await anyio.sleep(BEAT_S)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hurry)
            yield
            tasks.cancel_scope.cancel()
