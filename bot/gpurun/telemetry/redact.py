"""Secrets are masked to equal length with `*`, over the union of all occurrences of all their forms.

Equal length keeps offsets the same for the agent, the wire and the store. A stream is masked piece by piece without
any state between the pieces: what could still become a secret is not taken, and comes again with the next piece.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from urllib.parse import quote_from_bytes, quote_plus

from ahocorasick_rs import BytesAhoCorasick
from pydantic import SecretStr

from gpurun.domain.errors import Bug

MIN_SECRET_BYTES = 6
"""Shorter ones would mask half of the log; whoever registers a secret refuses them."""

_HEAD = 4
"""Bytes by which a possible beginning is looked up."""


def forms(secret: bytes) -> frozenset[bytes]:
    """Every spelling of `secret` that is masked, each at least `MIN_SECRET_BYTES` long.

    Raw, its lines, base64 (both alphabets, at each of the three alignments inside a longer text), hex, URL-quoted,
    JSON-escaped. Compressed or encrypted copies cannot be found.
    """
    if len(secret) < MIN_SECRET_BYTES:
        raise Bug(f"A secret shorter than {MIN_SECRET_BYTES} bytes cannot be masked.")
    found = {secret, secret.strip(), *(line.strip() for line in secret.splitlines())}
    found |= {binascii.hexlify(secret), binascii.hexlify(secret).upper()}
    found |= set(_base64_forms(secret))
    found |= {quote_from_bytes(secret, safe="").encode(), quote_from_bytes(secret).encode()}
    found |= {quote_plus(secret).encode(), *_json_forms(secret)}
    return frozenset(form for form in found if len(form) >= MIN_SECRET_BYTES)


def _base64_forms(secret: bytes) -> Iterable[bytes]:
    """The characters that depend on nothing but the secret, for 0, 1 and 2 bytes in front of it."""
    for shift in range(3):
        length = shift + len(secret)
        first = (shift * 8 + 5) // 6
        last = length * 8 // 6
        padded = b"\0" * shift + secret
        yield base64.b64encode(padded)[first:last]
        yield base64.urlsafe_b64encode(padded)[first:last]


def _json_forms(secret: bytes) -> Iterable[bytes]:
    try:
        text = secret.decode()
    except UnicodeDecodeError:
        return
    yield json.dumps(text)[1:-1].encode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode()


class Masker:
    """Masks one fixed set of secrets."""

    def __init__(self, secrets: Iterable[SecretStr]) -> None:
        needles: set[bytes] = set()
        for secret in secrets:
            needles |= forms(secret.get_secret_value().encode("utf-8", "surrogateescape"))
        self._automaton = BytesAhoCorasick(sorted(needles)) if needles else None
        self._longest = max(map(len, needles), default=0)
        self._inner = frozenset(byte for needle in needles for byte in needle[:-1])
        """Bytes that a needle can be cut after."""
        self._short = frozenset(needle[:n] for needle in needles for n in range(1, _HEAD))
        self._by_head: dict[bytes, list[bytes]] = {}
        for needle in needles:
            self._by_head.setdefault(needle[:_HEAD], []).append(needle)

    def mask(self, data: bytes) -> bytes:
        """`data` as a whole text of its own."""
        return _starred(data, self._spans(data))

    def take(self, data: bytes) -> bytes:
        """The masked beginning of `data` that later bytes cannot change; the caller sends the rest again.

        Whatever the cuts, the pieces together are `mask` of the whole. Never holds back more than two needles' length.
        """
        spans = self._spans(data)
        return _starred(data, spans)[: _safe_cut(spans, len(data) - self._pending(data))]

    def _spans(self, data: bytes) -> list[tuple[int, int]]:
        if self._automaton is None:
            return []
        return [(start, end) for _, start, end in self._automaton.find_matches_as_indexes(data, overlapping=True)]

    def _pending(self, data: bytes) -> int:
        """Length of the longest end of `data` that is a proper beginning of a needle."""
        if not data or data[-1] not in self._inner:
            return 0
        tail = data[-(self._longest - 1) :]
        for at in range(len(tail)):
            rest = len(tail) - at
            if rest < _HEAD:
                if tail[at:] in self._short:
                    return rest
            elif any(
                len(needle) > rest and needle.startswith(tail[at:])
                for needle in self._by_head.get(tail[at : at + _HEAD], ())
            ):
                return rest
        return 0


def _safe_cut(spans: list[tuple[int, int]], limit: int) -> int:
    """The highest offset ≤ `limit` (nearly) where a new start finds the same masks from there on.

    A cut inside an occurrence would show its second half. Among those that cross `limit` the one that ends last is kept
    whole: every other one that is cut ends within it, so that its bytes are masked either way.
    """
    crossing = [(end, start) for start, end in spans if start < limit < end]
    return max(crossing)[1] if crossing else limit


def _starred(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    if not spans:
        return data
    masked = bytearray(data)
    for start, end in spans:
        masked[start:end] = b"*" * (end - start)
    return bytes(masked)
