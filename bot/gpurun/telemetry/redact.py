"""Secrets are masked to equal length with `*`, over the union of all occurrences of all their forms.

Equal length keeps offsets the same for the agent, the wire and the store. A stream is masked piece by piece without
any state between the pieces: what could still become a secret is not taken, and comes again with the next piece.
Besides the given secrets, whatever looks like a token, an AWS key or a private key is masked (`gpurun_agent.patterns`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ahocorasick_rs import BytesAhoCorasick, Implementation
from pydantic import SecretStr

from gpurun.telemetry.forms import needles
from gpurun_agent.cover import Beginnings, starred
from gpurun_agent.patterns import NO, PREFIXES, UNDECIDED, Scan

_ANCHOR = 8
"""Bytes of a needle that the automaton knows; the rest is compared. It stays small enough for the CPU's cache then."""
_BUSY_BYTES = 1024 * 1024
"""From so many on a masker is worth the automaton that is three times as quick and four times as large (170 KiB for a
run without secrets of its own). A thousand quiet runs are not."""

Span = tuple[int, int]


class WholeMasker:
    """Masks whole texts with one fixed set of needles (`forms.needles`)."""

    def __init__(self, needles: frozenset[bytes]) -> None:
        self.needles = needles
        """What the agent needs to mask the same bytes."""
        anchored: dict[bytes, list[bytes]] = {}
        for needle in self.needles:
            anchored.setdefault(needle[:_ANCHOR], []).append(needle)
        self._anchored = list(anchored.values())
        self._automaton = BytesAhoCorasick([*anchored, *PREFIXES], implementation=Implementation.ContiguousNFA)
        self._until_quick = _BUSY_BYTES

    def mask(self, data: bytes) -> bytes:
        """`data` as a whole text of its own."""
        return starred(data, self._spans(data, final=True)[0], len(data))

    def text(self, text: str) -> str:
        """`mask` for characters: each masked byte is a star."""
        data = text.encode("utf-8", "surrogateescape")
        masked = self.mask(data)
        return text if masked == data else masked.decode("utf-8", "replace")

    def _spans(self, data: bytes, *, final: bool) -> tuple[list[Span], int]:
        """All occurrences, and where the first thing starts that later bytes decide."""
        spans: list[Span] = []
        open_at = len(data)
        scan = Scan(data, final=final)
        n_anchors = len(self._anchored)
        for number, start, _ in self._automaton_for(data).find_matches_as_indexes(data, overlapping=True):
            if number < n_anchors:
                spans += [
                    (start, start + len(needle)) for needle in self._anchored[number] if data.startswith(needle, start)
                ]
                continue
            end = scan.end(number - n_anchors, start)
            if end == UNDECIDED:
                open_at = min(open_at, start)
            elif end != NO:
                spans.append((start, end))
        return spans, open_at

    def _automaton_for(self, data: bytes) -> BytesAhoCorasick:
        if self._until_quick > 0:
            self._until_quick -= len(data)
            if self._until_quick <= 0:
                anchors = [group[0][:_ANCHOR] for group in self._anchored]
                self._automaton = BytesAhoCorasick([*anchors, *PREFIXES], implementation=Implementation.DFA)
        return self._automaton


class Masker(WholeMasker):
    """Masks streams too, with one fixed set of secrets."""

    def __init__(self, secrets: Iterable[SecretStr]) -> None:
        """Raises SecretRefused."""
        super().__init__(needles(secrets))
        self._beginnings = Beginnings(self.needles)

    def take(self, data: bytes) -> bytes:
        """The masked beginning of `data` that later bytes cannot change; the caller sends the rest again.

        Whatever the cuts, the pieces together are `mask` of the whole. Held back is less than the two longest needles,
        or `patterns.LONGEST` and one needle.
        """
        spans, open_at = self._spans(data, final=False)
        limit = min(len(data) - self._beginnings.pending(data), open_at)
        return starred(data, spans, _safe_cut(spans, limit))


class EverythingMasker(Masker):
    """For an attempt that holds a secret which nobody knows: of what it says only the line ends are shown."""

    def mask(self, data: bytes) -> bytes:
        return b"\n".join(b"*" * len(line) for line in data.split(b"\n"))

    def take(self, data: bytes) -> bytes:
        return self.mask(data)


def _safe_cut(spans: list[Span], limit: int) -> int:
    """The highest offset ≤ `limit` (nearly) where a new start finds the same masks from there on.

    A cut inside an occurrence would show its second half. Among those that cross `limit` the one that ends last is kept
    whole: every other one that is cut ends within it, so that its bytes are masked either way.
    """
    crossing = [(end, start) for start, end in spans if start < limit < end]
    return max(crossing)[1] if crossing else limit
