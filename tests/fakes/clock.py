"""A clock that moves when a test says so, and chance that repeats."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

from ulid import ULID

START = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


class FakeClock:
    """`ports.clock.Clock`. Sleepers wake when `advance` passes their time."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        event = asyncio.Event()
        self._sleepers.append((self._elapsed + seconds, event))
        await event.wait()

    def advance(self, **delta: float) -> None:
        """`clock.advance(minutes=5)`; whoever slept until then goes on at the next turn of the loop."""
        self._elapsed += timedelta(**delta).total_seconds()
        due = [(at, event) for at, event in self._sleepers if at <= self._elapsed]
        self._sleepers = [(at, event) for at, event in self._sleepers if at > self._elapsed]
        for _, event in sorted(due, key=lambda pair: pair[0]):
            event.set()


class FakeChance:
    """`ports.clock.Chance` from a seed; ULIDs rise."""

    def __init__(self, clock: FakeClock, seed: int = 1) -> None:
        self._clock = clock
        self._random = random.Random(seed)
        self._count = 0

    def ulid(self) -> str:
        self._count += 1
        head = ULID.from_datetime(self._clock.now()).bytes[:6]
        return str(ULID(head + self._count.to_bytes(4, "big") + self._random.randbytes(6))).lower()

    def token(self, n_bytes: int) -> str:
        return self._random.randbytes(n_bytes).hex()

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
