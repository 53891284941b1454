"""Time and chance, injected everywhere."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for rows, monotonic time for leases, and sleep."""

    def now(self) -> datetime:
        """Aware UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds`, or when a test says so."""
        ...


class Chance(Protocol):
    """Randomness."""

    def ulid(self) -> str:
        """26 characters, lower case, sortable by time."""
        ...

    def token(self, n_bytes: int) -> str:
        """`n_bytes` of randomness, url-safe text."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """For jitter."""
        ...
