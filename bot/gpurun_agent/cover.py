"""What both maskers share: where a text may be cut, and stars over spans."""

from __future__ import annotations

from gpurun_agent.patterns import PREFIXES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = 4
"""Bytes by which a possible beginning is looked up."""


class Beginnings:
    """Tells how much of the end of a text could be the beginning of a needle, or of a prefix in `patterns`."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        self._longest = 0
        self._first: set[int] = set()
        self._pairs = bytearray(8192)
        """A bit for each pair of bytes that a needle can be cut after: nearly every text ends with another one."""
        self._short: set[bytes] = set()
        self._by_head: dict[bytes, list[bytes]] = {}
        for needle in (*needles, *PREFIXES):
            self._add(needle)

    def _add(self, needle: bytes) -> None:
        self._longest = max(self._longest, len(needle))
        self._first.add(needle[0])
        pairs = self._pairs
        before = needle[0]
        for byte in needle[1:-1]:
            pair = before << 8 | byte
            pairs[pair >> 3] |= 1 << (pair & 7)
            before = byte
        self._short.update(needle[:n] for n in range(1, min(_HEAD, len(needle))))
        if len(needle) > _HEAD:
            self._by_head.setdefault(needle[:_HEAD], []).append(needle)

    def pending(self, text: bytes) -> int:
        """Length of the longest end of `text` that is a proper beginning."""
        if not text:
            return 0
        pair = text[-2] << 8 | text[-1] if len(text) > 1 else 0
        if len(text) < 2 or not self._pairs[pair >> 3] >> (pair & 7) & 1:
            return 1 if text[-1] in self._first else 0
        tail = text[-(self._longest - 1) :]
        by_head = self._by_head
        for at in range(len(tail) - _HEAD + 1):
            for needle in by_head.get(tail[at : at + _HEAD], ()):
                if len(needle) > len(tail) - at and needle.startswith(tail[at:]):
                    return len(tail) - at
        for rest in range(min(_HEAD - 1, len(tail)), 0, -1):
            if tail[-rest:] in self._short:
                return rest
        return 0


def merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bytes in order and without overlaps."""
    spans.sort()
    out: list[tuple[int, int]] = []
    for start, end in spans:
        if out and start <= out[-1][1]:
            if end > out[-1][1]:
                out[-1] = (out[-1][0], end)
        else:
            out.append((start, end))
    return out


def starred(text: bytes, spans: list[tuple[int, int]], cut: int) -> bytes:
    """`text` up to `cut` with `*` in all `spans`."""
    if not spans:
        return text[:cut]
    out = bytearray(text[:cut])
    for start, end in merged(spans):
        end = min(end, cut)
        if start < end:
            out[start:end] = b"*" * (end - start)
    return bytes(out)
