"""Secrets become `*` of the same length: the union of all occurrences of all their forms, whatever the cuts.

The bot sends the forms as needles, bytes to be masked wherever they stand, and masks again with the same ones, so that
offsets agree everywhere. Secrets that show by their shape (`patterns`) need no needle.
"""

from __future__ import annotations

import sys

from gpurun_agent.cover import Beginnings, starred
from gpurun_agent.patterns import NEAR, NO, PREFIXES, SPARSE, UNDECIDED, Scan
from gpurun_agent.protocol import MIN_MASK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TOKEN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
"""Bytes that long random values are made of. Not `/`, `.`, `=`: with them every path and number would be a long run."""

_WORDS = bytes(byte if byte in _TOKEN else 32 for byte in range(256))
_CLASSES = bytes(97 if byte in _TOKEN else 32 for byte in range(256))

_RUN = 16
"""A log has few runs of token bytes so long; a needle with one is sought only there."""

_MANY = 24
"""So many needles without a long run are sought one by one; more through their grams."""

_FAR = 1 << 62


class _Grams:
    """Finds which of many needles may be in a text, by looking at every `size`-th place of it only.

    A needle of at least 2 · size - 1 bytes covers such a place wherever it stands, so one of its first `size` grams is
    there. The time is the same for ten needles and ten thousand.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._needles: dict[int, list[bytes]] = {}
        self._all: frozenset[int] = frozenset()

    def add(self, part: bytes, needle: bytes) -> None:
        """`part` of `needle` is what will be seen. To be called before the first `find`."""
        for at in range(self._size):
            gram = int.from_bytes(part[at : at + self._size], sys.byteorder)
            self._needles.setdefault(gram, []).append(needle)

    def close(self) -> None:
        """All are added."""
        self._all = frozenset(self._needles)

    def find(self, text: bytes) -> set[bytes]:
        """Every needle that is in `text`, and perhaps some that are not."""
        view = memoryview(text)[: len(text) // self._size * self._size].cast("Q" if self._size == 8 else "I")
        if self._all.isdisjoint(view):
            return set()
        return {needle for gram in self._all.intersection(view) for needle in self._needles[gram]}


class Masker:
    """Masks a stream piece by piece. Holds back only what could still become a secret."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        self._needles: set[bytes] = set()
        self._tail = b""
        self._covered = 0
        """Leading bytes of the tail that an earlier occurrence covers."""
        self._index()
        self.add(needles)

    def add(self, needles: Iterable[bytes]) -> None:
        """More to be masked, from what was not released yet. Shorter ones than `MIN_MASK` are left out."""
        fresh = {needle for needle in needles if len(needle) >= MIN_MASK} - self._needles
        if fresh:
            self._needles |= fresh
            self._index()

    def feed(self, data: bytes) -> bytes:
        """The masked bytes that are certain now."""
        text = self._tail + data
        spans, open_at = self._spans(text, final=False)
        cut = min(len(text) - self._beginnings.pending(text), open_at)
        return self._release(text, spans, cut)

    def flush(self) -> bytes:
        """What was held back: nothing follows."""
        text = self._tail
        spans, _ = self._spans(text, final=True)
        return self._release(text, spans, len(text))

    def whole(self, text: bytes) -> bytes:
        """`text` masked as a stream of its own."""
        spans, _ = self._spans(text, final=True)
        return starred(text, spans, len(text))

    def _release(self, text: bytes, spans: list[tuple[int, int]], cut: int) -> bytes:
        if self._covered:
            spans.append((0, self._covered))
        out = starred(text, spans, cut)
        # An occurrence that starts in what is released may end in the tail and would not be found there again.
        self._covered = max([self._covered, *(end for start, end in spans if start < cut)]) - cut
        if self._covered < 0:
            self._covered = 0
        self._tail = text[cut:]
        return out

    # occurrences

    def _spans(self, text: bytes, *, final: bool) -> tuple[list[tuple[int, int]], int]:
        """Of needles and patterns, and where the first thing starts that later bytes decide."""
        runs = _long_runs(text)
        spans = [(at, at + len(needle)) for needle in self._candidates(text, runs) for at in _places(text, needle)]
        open_at = _FAR
        scan = Scan(text, final=final)
        near = text[-NEAR:]
        for number, prefix in enumerate(PREFIXES):
            if prefix in runs or (prefix in text if prefix in SPARSE else prefix in near):
                for at in _places(text, prefix):
                    end = scan.end(number, at)
                    if end == UNDECIDED:
                        open_at = min(open_at, at)
                    elif end != NO:
                        spans.append((at, end))
        return spans, open_at

    def _candidates(self, text: bytes, runs: bytes) -> Iterable[bytes]:
        found = set(self._plain)
        if runs:
            found |= self._by_run.find(runs)
        if self._by_start is not None:
            found |= self._by_start.find(text)
        return found

    def _index(self) -> None:
        self._beginnings = Beginnings(self._needles)
        self._by_run = _Grams(8)
        self._by_start: _Grams | None = None
        self._plain: list[bytes] = []
        for needle in self._needles:
            run = max(needle.translate(_WORDS).split(b" "), key=len)
            if len(run) >= _RUN:
                self._by_run.add(run, needle)
            else:
                self._plain.append(needle)
        self._by_run.close()
        if len(self._plain) > _MANY:
            self._by_start = _Grams(4)
            for needle in self._plain:
                if len(needle) >= 7:
                    self._by_start.add(needle, needle)
            self._by_start.close()
            self._plain = [needle for needle in self._plain if len(needle) < 7]


def _places(text: bytes, needle: bytes) -> Iterator[int]:
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


def _long_runs(text: bytes) -> bytes:
    """All runs of token bytes of at least `_RUN`, joined."""
    classes = text.translate(_CLASSES)
    wanted = b"a" * _RUN
    runs = []
    at = classes.find(wanted)
    while at >= 0:
        end = classes.find(b" ", at)
        if end < 0:
            end = len(text)
        runs.append(text[at:end])
        at = classes.find(wanted, end)
    return b" ".join(runs)
