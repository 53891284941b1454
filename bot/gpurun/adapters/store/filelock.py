"""One process per SQLite database."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from gpurun.domain.errors import StoreBusy


class FileLock:
    """Held from construction to `release`; the kernel lets it go when the process dies."""

    def __init__(self, database: Path) -> None:
        path = database.with_name(database.name + ".lock")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            os.close(self._fd)
            raise StoreBusy(
                f"Another gpurun process uses {database}. SQLite serves one process; several need PostgreSQL:"
                " GPURUN_DATABASE_URL=postgresql://user:password@host/name"
            ) from exc

    def release(self) -> None:
        """Once."""
        os.close(self._fd)
