"""Secrets become `*` of the same length: the union of all occurrences of all their forms, whatever the cuts.

The bot masks again with the same forms, so that offsets agree everywhere.
"""

from __future__ import annotations

from gpurun_agent.protocol import MIN_MASK
from gpurun_agent.wire import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = 4
"""Bytes by which a possible beginning is looked up."""

_TOKEN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
"""Bytes that long random values are made of. Not `/`, `.`, `=`: with them every path and number would be a long run."""

_RUN = 16
"""Runs of token bytes shorter than this are not worth a look for a form that has a longer one."""

_MANY = 30
"""From so many forms on, the runs are picked out first."""


def forms_of(secret: bytes) -> set[bytes]:
    """Every spelling that is masked, none shorter than `MIN_MASK`: raw, its lines, base64 (both alphabets, at the
    three alignments inside a longer text), hex, URL-quoted, JSON-escaped.
    """
    import binascii

    found = {secret, secret.strip()}
    found.update(line.strip() for line in secret.splitlines())
    digits = binascii.hexlify(secret)
    found.update((digits, digits.upper()))
    for shift in range(3):
        length = shift + len(secret)
        # The characters that depend on nothing but the secret.
        first, last = (shift * 8 + 5) // 6, length * 8 // 6
        text = binascii.b2a_base64(b"\0" * shift + secret, newline=False)[first:last]
        found.update((text, text.replace(b"+", b"-").replace(b"/", b"_")))
    found.update((quote(secret), quote(secret, b"/"), quote(secret, b" ").replace(b" ", b"+")))
    found.update(_json_forms(secret))
    return {form for form in found if len(form) >= MIN_MASK}


def _json_forms(secret: bytes) -> Iterable[bytes]:
    try:
        text = secret.decode("utf-8")
    except UnicodeDecodeError:
        return
    short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "\b": "\\b"}
    plain, ascii_only = [], []
    for char in text:
        code = ord(char)
        escaped = short.get(char) or (char if code >= 0x20 else "\\u%04x" % code)
        plain.append(escaped)
        if code < 0x7F:
            ascii_only.append(escaped)
        elif code < 0x10000:
            ascii_only.append("\\u%04x" % code)
        else:
            high, low = divmod(code - 0x10000, 0x400)
            ascii_only.append("\\u%04x\\u%04x" % (0xD800 + high, 0xDC00 + low))
    yield "".join(plain).encode("utf-8")
    yield "".join(ascii_only).encode("ascii")


class Masker:
    """Masks a stream piece by piece. Holds back only what could still become a secret."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        forms: set[bytes] = set()
        for secret in secrets:
            if len(secret) >= MIN_MASK:
                forms |= forms_of(secret)
        self._forms = sorted(forms)
        self._longest = max(map(len, forms), default=0)
        self._tail = b""
        self._covered = 0
        """Leading bytes of the tail that an earlier occurrence covers."""
        self._index_beginnings()
        self._index_runs()

    def feed(self, data: bytes) -> bytes:
        """The masked bytes that are certain now."""
        if not self._forms:
            return data
        text = self._tail + data
        cut = len(text) - self._pending(text)
        return self._release(text, cut)

    def flush(self) -> bytes:
        """What was held back: nothing follows."""
        return self._release(self._tail, len(self._tail))

    def whole(self, text: bytes) -> bytes:
        """`text` masked as a stream of its own."""
        return _starred(text, self._spans(text), len(text))

    def _release(self, text: bytes, cut: int) -> bytes:
        spans = self._spans(text)
        if self._covered:
            spans.append((0, self._covered))
        out = _starred(text, spans, cut)
        # An occurrence that starts in what is released may end in the tail and would not be found there again.
        self._covered = max(0, self._covered - cut, *(end - cut for start, end in spans if start < cut))
        self._tail = text[cut:]
        return out

    # occurrences

    def _spans(self, text: bytes) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        if not self._runs:
            candidates = self._forms
        else:
            runs = self._long_runs(text)
            candidates = self._plain
            if runs:
                candidates = candidates + [form for run, form in self._runs if run in runs]
        for form in candidates:
            at = text.find(form)
            while at >= 0:
                spans.append((at, at + len(form)))
                at = text.find(form, at + 1)
        return spans

    def _index_runs(self) -> None:
        """Random values sit in long runs of token bytes; a log has few, so that the forms are sought only there."""
        self._plain: list[bytes] = []
        self._runs: list[tuple[bytes, bytes]] = []
        self._classes = bytes(97 if byte in _TOKEN else 32 for byte in range(256))
        if len(self._forms) < _MANY:
            return
        for form in self._forms:
            words = form.translate(bytes(byte if byte in _TOKEN else 32 for byte in range(256))).split(b" ")
            run = max(words, key=len)
            if len(run) >= _RUN:
                self._runs.append((run, form))
            else:
                self._plain.append(form)

    def _long_runs(self, text: bytes) -> bytes:
        """All runs of token bytes of at least `_RUN`, joined."""
        classes = text.translate(self._classes)
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

    # beginnings

    def _index_beginnings(self) -> None:
        self._inner = frozenset(byte for form in self._forms for byte in form[:-1])
        self._short = frozenset(form[:n] for form in self._forms for n in range(1, _HEAD))
        self._by_head: dict[bytes, list[bytes]] = {}
        for form in self._forms:
            self._by_head.setdefault(form[:_HEAD], []).append(form)

    def _pending(self, text: bytes) -> int:
        """Length of the longest end of `text` that is a proper beginning of a form."""
        if not text or text[-1] not in self._inner:
            return 0
        tail = text[-(self._longest - 1) :]
        for at in range(len(tail)):
            rest = len(tail) - at
            if rest < _HEAD:
                if tail[at:] in self._short:
                    return rest
                continue
            for form in self._by_head.get(tail[at : at + _HEAD], ()):
                if len(form) > rest and form.startswith(tail[at:]):
                    return rest
        return 0


def _starred(text: bytes, spans: list[tuple[int, int]], cut: int) -> bytes:
    if not spans:
        return text[:cut]
    out = bytearray(text[:cut])
    for start, end in spans:
        end = min(end, cut)
        if start < end:
            out[start:end] = b"*" * (end - start)
    return bytes(out)
