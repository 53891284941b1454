"""Bytes of one stream that the bot may still ask for: first in memory, then in a file."""

from __future__ import annotations

import os

MEMORY = 16 * 1024 * 1024
"""Bytes kept in memory; more go to a file, so that an unreachable bot does not stop the command."""

REFILL = 4 * 1024 * 1024


class Backlog:
    """The bytes `start <= offset < end` of a stream. The file has no name, so that nothing of it is left behind.

    In order: the head in memory, the file, and the tail, which is what the file had no room for.
    """

    def __init__(self, folder: str, limit: int, memory: int = MEMORY) -> None:
        self.start = 0
        self.end = 0
        self._folder = folder
        self._limit = limit
        self._memory = memory
        self._head = bytearray()
        self._file = -1
        self._file_read = 0
        self._file_end = 0
        self._tail = bytearray()

    @property
    def full(self) -> bool:
        """The writer should wait. `append` still works."""
        return self.end - self.start >= self._limit or bool(self._tail)

    def append(self, data: bytes) -> None:
        """Adds `data` at the end. With a full disk it stays in memory and the backlog calls itself full."""
        self.end += len(data)
        if not self._file_end and not self._tail and len(self._head) < self._memory:
            self._head += data
        elif self._tail or not self._spilled(data):
            self._tail += data

    def ready(self, offset: int) -> int:
        """Bytes that `peek` could return now; more may follow when older ones are forgotten."""
        return self.start + len(self._head) - offset

    def peek(self, offset: int, n_bytes: int) -> bytes:
        """Up to `n_bytes` from `offset`, which must not be below `start`."""
        first = offset - self.start
        with memoryview(self._head) as view:
            return bytes(view[first : first + n_bytes])

    def forget(self, offset: int) -> None:
        """The bytes below `offset` are safe elsewhere, or given up: whatever of them is in the file is not read."""
        done = min(offset, self.end) - self.start
        if done <= 0:
            return
        self.start += done
        in_head = min(done, len(self._head))
        del self._head[:in_head]
        in_file = min(done - in_head, self._file_end - self._file_read)
        self._file_read += in_file
        del self._tail[: done - in_head - in_file]
        if len(self._head) < min(REFILL, self._memory):
            self._refill()

    def _spilled(self, data: bytes) -> bool:
        """False when the disk has no room; what it took of `data` does not count.

        The file is emptied only when it was read to its end, so it has the limit of its own.
        """
        if self._file_end + len(data) > self._limit:
            return False
        try:
            if self._file < 0:
                name = os.path.join(self._folder, ".gpurun-%s" % os.urandom(8).hex())
                self._file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                os.unlink(name)
            view = memoryview(data)
            at = self._file_end
            while view:
                n_bytes = os.pwrite(self._file, view, at)
                view = view[n_bytes:]
                at += n_bytes
        except OSError:
            return False
        self._file_end = at
        return True

    def _refill(self) -> None:
        """Moves the oldest bytes into the head, from the file until it is read, then from the tail."""
        if self._file_read < self._file_end:
            data = os.pread(self._file, min(REFILL, self._file_end - self._file_read), self._file_read)
            self._head += data
            self._file_read += len(data)
        if self._file_read == self._file_end:
            if self._file_end:
                self._file_read = self._file_end = 0
                os.ftruncate(self._file, 0)
            self._head += self._tail
            self._tail.clear()
