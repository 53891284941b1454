"""Where a log that still grows can be cut so that its pieces read like the whole (`domain.text.clean_log`)."""

from __future__ import annotations

from gpurun.domain.text import clean_log

MAX_LINE_BYTES = 64 * 1024
"""A line without an end is shown in pieces of this size."""

_ESCAPE_TAIL_BYTES = 256
"""An escape sequence that is longer is shown as the text it is."""


def whole_lines(data: bytes) -> int:
    """How much of the beginning of `data` can be cleaned now without looking at what follows.

    Up to its last newline. A line longer than `MAX_LINE_BYTES` is cut at a carriage return that something follows, or
    where neither a character nor an escape sequence is split.
    """
    newline = data.rfind(b"\n") + 1
    if newline or len(data) < MAX_LINE_BYTES:
        return newline
    returned = data.rfind(b"\r", 0, len(data) - 1) + 1
    return returned or _between_characters(data)


def clean_whole_lines(data: bytes) -> str:
    """The text of `data`, which `whole_lines` cut off: of a line that starts anew behind the cut nothing is seen."""
    return "" if data.endswith(b"\r") and b"\n" not in data else clean_log(data)


def _between_characters(data: bytes) -> int:
    end = len(data)
    escape = data.rfind(b"\x1b", end - _ESCAPE_TAIL_BYTES)
    if escape > 0:
        return escape
    for back in range(1, 4):
        byte = data[end - back]
        if byte >= 0xC0:  # the first byte of a character: whole only when all of it is there
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return end if length <= back else end - back
        if byte < 0x80:
            return end
    return end
