"""One process per SQLite database."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from gpurun.domain.errors import StoreBusy

PATIENCE_S = 1.0
"""A process that was killed while it started another one leaves it the lock until that one has begun."""
_PAUSE_S = 0.05
_pause = threading.Event().wait


class FileLock:
    """Held from construction, which may block for `PATIENCE_S`, to `release`. The kernel lets it go when the process
    dies.
    """

    def __init__(self, database: Path) -> None:
        path = database.with_name(database.name + ".lock")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take()
        except BlockingIOError as exc:
            os.close(self._fd)
            raise StoreBusy(
                f"Another gpurun process uses {database}. SQLite serves one process; several need PostgreSQL:"
                " GPURUN_DATABASE_URL=postgresql://user:password@host/name"
            ) from exc

    def _take(self) -> None:
        """Raises BlockingIOError when somebody holds it all the time."""
        for _ in range(round(PATIENCE_S / _PAUSE_S)):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _pause(_PAUSE_S)
            else:
                return
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Once."""
        os.close(self._fd)
