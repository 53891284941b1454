"""Time that a test lets pass, for several processes and a PostgreSQL at once; between two shifts it runs as it does."""

from __future__ import annotations

import asyncio
import mmap
import struct
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.world.rows import write

LOOK_EVERY_S = 0.05
_SECONDS = struct.Struct("d")

SHIFT = """
CREATE SCHEMA shifted;
CREATE TABLE shifted.shift (seconds double precision);
INSERT INTO shifted.shift VALUES (0);
CREATE FUNCTION shifted.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
'SELECT pg_catalog.clock_timestamp() + make_interval(secs => (SELECT seconds FROM shifted.shift))';
ALTER DATABASE {name} SET search_path = public, shifted, pg_catalog
"""


class ShiftedClock:
    """`ports.clock.Clock`: the machine's time and what stands in `file`. Sleepers notice a shift within 50 ms."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(_SECONDS.pack(0.0))
        with file.open("r+b") as opened:
            self._shift = mmap.mmap(opened.fileno(), _SECONDS.size)

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.shift_s)

    def monotonic(self) -> float:
        return time.monotonic() + self.shift_s

    async def sleep(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        while (left := until - self.monotonic()) > 0:
            await asyncio.sleep(min(left, LOOK_EVERY_S))
        if seconds <= 0:
            await asyncio.sleep(0)

    @property
    def shift_s(self) -> float:
        """How far it is ahead of the machine."""
        shift: float = _SECONDS.unpack(self._shift[:])[0]
        return shift

    def advance(self, seconds: float) -> None:
        """For every process that looks at the file."""
        self._shift[:] = _SECONDS.pack(self.shift_s + seconds)


def shift_postgres(url: str) -> None:
    """New connections to the database get a `clock_timestamp()` that `postgres_is_ahead` moves."""
    for statement in SHIFT.split(";"):
        write(url, statement.format(name=url.rpartition("/")[2]))


def postgres_is_ahead(url: str, seconds: float) -> None:
    """Of the machine."""
    write(url, f"UPDATE shifted.shift SET seconds = {seconds!r}")
