"""A file that is being downloaded: in order, or range by range, and continued after any end of the process.

`<sha256>.part` holds the bytes. `<sha256>.part.ranges` beside it holds, for each range, how many of its bytes are there
(64 bits each), written after the bytes; without it they are there up to the file's size. Both are hints: only the hash
of the whole decides.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

PIECE_BYTES = 256 * 1024
RANGE_BYTES = 32 * 1024 * 1024


class Part:
    """Locked by this process; the lock is that of the open file, so that the end of a process frees it.

    A cancelled caller closes it while threads may still be writing; a write after `close` must not hit another file
    that got the same descriptor, hence the lock.
    """

    def __init__(self, path: Path, file: int, size: int) -> None:
        self._path = path
        self._file = file
        self._size = size
        self._open = threading.Lock()
        self._grown = threading.Condition(self._open)
        self._closed = False
        if os.fstat(file).st_size > size:
            os.ftruncate(file, 0)
        self._ranges = -1
        """Descriptor of the counts; -1 while the bytes come in order."""
        self._counts = self._found_counts()
        self.found = self._prefix()
        """Bytes from the start without a gap that an earlier download left."""
        self.found_all = sum(self._counts)
        self._end = self.found

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._path

    def pieces(self) -> Iterator[bytes]:
        """What was found."""
        for at in range(0, self.found, PIECE_BYTES):
            yield os.pread(self._file, min(PIECE_BYTES, self.found - at), at)

    def write(self, data: bytes) -> None:
        """Appends to what was found and written so; nothing when it is closed."""
        self.write_at(self._end, data)
        self._end += len(data)

    def write_at(self, at: int, data: bytes | memoryview) -> None:
        """Nothing when it is closed."""
        rest, to = memoryview(data), at
        with self._open:
            while rest and not self._closed:
                written = os.pwrite(self._file, rest, to)
                self._count(to, to + written)
                to += written
                rest = rest[written:]
            self._grown.notify_all()

    def by_ranges(self) -> None:
        """From now on bytes may come in any order."""
        with self._open:
            if self._ranges < 0 and not self._closed:
                draft = self._sidecar.with_name(self._sidecar.name + ".new")
                draft.write_bytes(_packed(self._counts))
                draft.rename(self._sidecar)
                self._ranges = os.open(self._sidecar, os.O_RDWR | os.O_CLOEXEC)

    def missing(self) -> list[tuple[int, int]]:
        """Where bytes are still to come from and to, in order."""
        starts = range(0, self._size, RANGE_BYTES)
        spans = ((at + n, min(at + RANGE_BYTES, self._size)) for at, n in zip(starts, self._counts, strict=True))
        return [(start, stop) for start, stop in spans if start < stop]

    def wait_beyond(self, at: int, timeout_s: float) -> int:
        """How far the bytes go without a gap, once it is beyond `at` or the time is over."""
        with self._grown:
            self._grown.wait_for(lambda: self._closed or self._prefix() > at, timeout_s)
            return self._prefix()

    def rename_to(self, path: Path) -> None:
        """Nobody waits for the disk: a file that a power failure tears has a wrong hash, and is fetched anew."""
        with self._open:
            if not self._closed:
                self._sidecar.unlink(missing_ok=True)
                os.fchmod(self._file, 0o444)
                self._path.rename(path)

    def discard(self) -> None:
        """The next download starts from nothing."""
        self._sidecar.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Lets the lock go; what is not renamed or discarded waits for the next try."""
        with self._open:
            if self._closed:
                return
            self._closed = True
            os.close(self._file)
            if self._ranges >= 0:
                os.close(self._ranges)
            self._grown.notify_all()

    @property
    def _sidecar(self) -> Path:
        return self._path.with_name(self._path.name + ".ranges")

    def _found_counts(self) -> list[int]:
        lengths = [min(RANGE_BYTES, self._size - at) for at in range(0, self._size, RANGE_BYTES)]
        there = os.fstat(self._file).st_size
        in_order = [max(0, min(length, there - at * RANGE_BYTES)) for at, length in enumerate(lengths)]
        try:
            packed = self._sidecar.read_bytes()
        except FileNotFoundError:
            return in_order
        if len(packed) != 8 * len(lengths) or there == 0:
            self._sidecar.unlink()
            return [0] * len(lengths)
        self._ranges = os.open(self._sidecar, os.O_RDWR | os.O_CLOEXEC)
        counts = struct.unpack(f"<{len(lengths)}Q", packed)
        return [min(count, most) for count, most in zip(counts, in_order, strict=True)]

    def _count(self, start: int, stop: int) -> None:
        while start < stop:
            number = start // RANGE_BYTES
            first = number * RANGE_BYTES
            end = min(stop, first + RANGE_BYTES)
            if start - first <= self._counts[number] < end - first:
                self._counts[number] = end - first
                if self._ranges >= 0:
                    os.pwrite(self._ranges, _packed([end - first]), 8 * number)
            start = end

    def _prefix(self) -> int:
        for number, count in enumerate(self._counts):
            first = number * RANGE_BYTES
            if first + count < min(first + RANGE_BYTES, self._size):
                return first + count
        return self._size


def _packed(counts: list[int]) -> bytes:
    return struct.pack(f"<{len(counts)}Q", *counts)
