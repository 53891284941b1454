"""Bytes of one stream that the bot may still ask for: first in memory, then in a file."""

from __future__ import annotations

import os

MEMORY = 16 * 1024 * 1024
"""Bytes kept in memory; more go to a file, so that an unreachable bot does not stop the command."""

REFILL = 4 * 1024 * 1024


class Backlog:
    """The bytes `start <= offset < end` of a stream. The file has no name, so that nothing of it is left behind."""

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

    @property
    def full(self) -> bool:
        """The writer should wait. `append` still works."""
        return self.end - self.start >= self._limit

    def append(self, data: bytes) -> None:
        """Adds `data` at the end. With a full disk it stays in memory and the backlog calls itself full."""
        self.end += len(data)
        if self._file_end == 0 and len(self._head) < self._memory:
            self._head += data
            return
        try:
            self._spill(data)
        except OSError:
            self._limit = min(self._limit, self._memory)
            self._unspill()
            self._head += data

    def ready(self, offset: int) -> int:
        """Bytes that `peek` could return now; more may follow when older ones are forgotten."""
        return self.start + len(self._head) - offset

    def peek(self, offset: int, n_bytes: int) -> bytes:
        """Up to `n_bytes` from `offset`, which must not be below `start`."""
        first = offset - self.start
        with memoryview(self._head) as view:
            return bytes(view[first : first + n_bytes])

    def forget(self, offset: int) -> None:
        """The bytes below `offset` are safe elsewhere."""
        done = min(offset, self.end) - self.start
        if done <= 0:
            return
        while done > len(self._head):
            done -= len(self._head)
            self.start += len(self._head)
            self._head.clear()
            self._refill()
        del self._head[:done]
        self.start += done
        if len(self._head) < REFILL:
            self._refill()

    def _spill(self, data: bytes) -> None:
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
        self._file_end = at

    def _refill(self) -> None:
        if self._file_end == 0:
            return
        data = os.pread(self._file, min(REFILL, self._file_end - self._file_read), self._file_read)
        self._head += data
        self._file_read += len(data)
        if self._file_read == self._file_end:
            self._file_read = self._file_end = 0
            os.ftruncate(self._file, 0)

    def _unspill(self) -> None:
        while self._file_end:
            self._refill()
