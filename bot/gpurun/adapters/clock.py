"""The machine's clock and randomness."""

from __future__ import annotations

import asyncio
import secrets
import time
from datetime import UTC, datetime
from random import SystemRandom

from ulid import ULID


class SystemClock:
    """`ports.clock.Clock` of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SystemChance:
    """`ports.clock.Chance` of this machine."""

    def ulid(self) -> str:
        return str(ULID()).lower()

    def token(self, n_bytes: int) -> str:
        return secrets.token_urlsafe(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        return SystemRandom().uniform(low, high)
