r"""Secrets that show by their shape: tokens of known services, AWS keys, private key blocks.

The bot uses this module too, so that both sides mask the same bytes. Whether something starts at a byte depends on that
byte and at most `LONGEST` that follow, never on what stands before: any way of cutting a stream finds the same.

    gh[pousr]_ and 36 or more of [A-Za-z0-9_-]          GitHub; with dots from there on, installation tokens hold a JWT
    github_pat_ and 50 or more of [A-Za-z0-9_]          GitHub
    hf_, rpa_ and 30 or more of [A-Za-z0-9]             Hugging Face, RunPod
    AKIA, ASIA and 16 of [A-Z2-7]                       AWS key ids
    aws_secret_access_key, AWS_SECRET_ACCESS_KEY, SecretAccessKey, then up to 8 of space " ' = : > , and backslash,
        then 40 to 64 of [A-Za-z0-9/+]                  AWS secret keys, which have no shape of their own
    -----BEGIN … PRIVATE KEY----- and its base64 lines, also with `\n` written out, up to the END line if it is there

Sources: https://github.blog/changelog/2026-04-24-notice-about-upcoming-new-format-for-github-app-installation-tokens/
(2026-04-24), https://github.com/gitleaks/gitleaks/blob/master/config/gitleaks.toml (2026-01), RFC 7468.
"""

from __future__ import annotations

NO = -1
UNDECIDED = -2
_CUT = -3

LONGEST = 32 * 1024
"""Bytes of one secret; what follows them is shown."""

_UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ALNUM = _UPPER + _UPPER.lower() + b"0123456789"
_TOKEN = _ALNUM + b"_-"
_BASE64 = _ALNUM + b"+/="
_LABEL = _UPPER + b"0123456789 "

_BEGIN = b"-----BEGIN "
_END = b"-----END "
_DASHES = b"-----"
_MARKER_MAX = 64
_SPACE = b" \t\r\n\"'+,"
_SPACE_MAX = 16
_HEADERS = (b"Proc-Type:", b"DEK-Info:", b"Version:", b"Comment:")
_HEADER_MAX = 120
_LINE = 32
"""Base64 characters of a line of a key that is not its last."""


class _Shape:
    """A prefix, perhaps a gap, and a value: `least` of `solid`, then more of `value` up to `most` in all."""

    __slots__ = ("gap", "gap_max", "least", "most", "prefix", "solid", "value")

    def __init__(
        self,
        prefix: bytes,
        solid: bytes,
        least: int,
        most: int,
        *,
        value: bytes = b"",
        gap: bytes = b"",
        gap_max: int = 0,
    ) -> None:
        self.prefix = prefix
        self.solid = solid
        self.least = least
        self.most = most
        self.value = value or solid
        self.gap = gap
        self.gap_max = gap_max


_GAP = b" \t\"'=:>,\\"
_SHAPES = (
    *(_Shape(b"gh%c_" % kind, _TOKEN, 36, 1020, value=_TOKEN + b".") for kind in b"pousr"),
    _Shape(b"github_pat_", _ALNUM + b"_", 50, 255),
    _Shape(b"hf_", _ALNUM, 30, 80),
    _Shape(b"rpa_", _ALNUM, 30, 80),
    _Shape(b"AKIA", _UPPER + b"234567", 16, 16),
    _Shape(b"ASIA", _UPPER + b"234567", 16, 16),
    *(
        _Shape(name, _ALNUM + b"/+", 40, 64, gap=_GAP, gap_max=8)
        for name in (b"aws_secret_access_key", b"AWS_SECRET_ACCESS_KEY", b"SecretAccessKey")
    ),
)

PREFIXES = (*(shape.prefix for shape in _SHAPES), _BEGIN)
"""What every such secret starts with, by number."""

SPARSE = (b"SecretAccessKey", _BEGIN)
"""Prefixes of secrets that need not hold 16 characters of [A-Za-z0-9_-] in a row."""

NEAR = 1200
"""An undecided secret of another prefix starts at most so far before the end."""


class Scan:
    """Looks at one text. `final`: nothing follows it."""

    def __init__(self, text: bytes, *, final: bool) -> None:
        self._text = text
        self._final = final
        self._runs: dict[bytes, tuple[int, int, bool]] = {}
        """By set of characters the last run that was measured: start, end so far, whether it ends there. Without it a
        text of prefixes only would be measured again from each."""

    def end(self, number: int, start: int) -> int:
        """Where the secret ends that begins at `start` with the prefix `number`; NO; UNDECIDED: bytes are missing."""
        if number == len(_SHAPES):
            return self._key_block(start)
        shape = _SHAPES[number]
        at = start + len(shape.prefix)
        run = self._runs.get(shape.solid)
        if run is not None and not shape.gap and run[0] <= at and at + shape.most <= run[1]:
            return at + shape.most  # the quick way through a run of prefixes
        if shape.gap:
            piece = self._text[at : at + shape.gap_max]
            gap = len(piece) - len(piece.lstrip(shape.gap))
            if at + gap == len(self._text):
                return NO if self._final else UNDECIDED
            if not gap:
                return NO
            at += gap
        solid = self._run(shape.solid, at, shape.most)
        if solid - at < shape.least:
            return UNDECIDED if solid == len(self._text) and not self._final else NO
        end = solid if shape.value is shape.solid else self._run(shape.value, at, shape.most)
        return UNDECIDED if end == len(self._text) and end - at < shape.most and not self._final else end

    def _run(self, members: bytes, at: int, longest: int) -> int:
        """Where the run of `members` from `at` ends, at most `longest` further."""
        text = self._text
        start, end, closed = self._runs.get(members, (0, 0, False))
        if not start <= at <= end or (closed and at == end):
            start, end, closed = at, at, False
        limit = min(at + longest, len(text))
        while end < limit and not closed:
            piece = text[end : end + 4096]
            length = len(piece) - len(piece.lstrip(members))
            end += length
            closed = length < len(piece)
        self._runs[members] = (start, end, closed)
        return min(end, limit)

    def _key_block(self, start: int) -> int:
        stop = min(start + LONGEST, len(self._text))
        more = not self._final and len(self._text) < start + LONGEST
        at = self._marker(_BEGIN, start, stop)
        if at < 0:
            return UNDECIDED if at == _CUT and more else NO
        end = NO
        while True:
            at = self._behind_space(at, stop)
            header = self._header(at, stop) if end == NO else NO
            if header == _CUT:
                return UNDECIDED if more else NO
            if header != NO:
                at = header
                continue
            line_end = self._run(_BASE64, at, stop - at)
            if line_end == stop:
                if more:
                    return UNDECIDED
                return line_end if line_end - at >= (_LINE if end == NO else 1) else end
            if line_end - at < _LINE:
                break
            end = at = line_end
        if end == NO:
            return NO
        if line_end > at:  # the last line
            end = line_end
            at = self._behind_space(line_end, stop)
        last = self._marker(_END, at, stop)
        if last == _CUT:
            return UNDECIDED if more else end
        return end if last == NO else last

    def _marker(self, word: bytes, at: int, stop: int) -> int:
        """Behind the marker line at `at`; NO; _CUT when it could be one and the text ends."""
        piece = self._text[at : min(at + _MARKER_MAX, stop)]
        whole = at + len(piece) == stop
        if not piece.startswith(word):
            return _CUT if whole and word.startswith(piece) else NO
        rest = piece[len(word) :]
        dashes = rest.lstrip(_LABEL)
        label = rest[: len(rest) - len(dashes)]
        if not dashes.startswith(_DASHES):
            return _CUT if whole and _DASHES.startswith(dashes) else NO
        if not label.endswith((b"PRIVATE KEY", b"PRIVATE KEY BLOCK")):
            return NO
        return at + len(word) + len(label) + len(_DASHES)

    def _behind_space(self, at: int, stop: int) -> int:
        """White space, quotes, and line ends that are written out."""
        piece = self._text[at : min(at + _SPACE_MAX, stop)]
        rest = piece.lstrip(_SPACE)
        while rest.startswith(b"\\"):
            rest = rest.lstrip(b"\\")
            if rest.startswith((b"n", b"r")):
                rest = rest[1:]
            rest = rest.lstrip(_SPACE)
        return at + len(piece) - len(rest)

    def _header(self, at: int, stop: int) -> int:
        """Behind a header line of an encrypted key; NO; _CUT."""
        piece = self._text[at : min(at + _HEADER_MAX, stop)]
        whole = at + len(piece) == stop
        if not piece.startswith(_HEADERS):
            return _CUT if whole and any(name.startswith(piece) for name in _HEADERS) else NO
        ends = [place for place in (piece.find(b"\n"), piece.find(b"\\")) if place >= 0]
        if not ends:
            return _CUT if whole else NO
        return at + min(ends)
