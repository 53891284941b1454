"""One writer of a mirror at a time, over all processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from gpurun.domain.errors import SourceUnavailable


@contextlib.contextmanager
def only_writer(mirror: Path) -> Iterator[int]:
    """Holds the mirror against other processes; yields the locked descriptor.

    The kernel drops the lock when its last holder dies, so git's own lock files found under it are leftovers of a
    killed process. Raises SourceUnavailable when another process is fetching.
    """
    mirror.parent.mkdir(parents=True, exist_ok=True)
    lock_fd = os.open(mirror.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise SourceUnavailable(f"another process is fetching into {mirror}", retry_after_s=2.0) from exc
        for leftover in (*mirror.glob("*.lock"), *mirror.glob("refs/**/*.lock")):
            leftover.unlink(missing_ok=True)
        yield lock_fd
    finally:
        os.close(lock_fd)
