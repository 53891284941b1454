"""Raw output of a job as text that is safe and pleasant to look at. Views clean; what is stored stays raw.

Escape sequences of terminals, control and bidirectional characters go; a carriage return starts its line anew.
The result is still untrusted text: whoever puts it into HTML or Markdown escapes it.
"""

from __future__ import annotations

import re

MAX_LINE_BYTES = 64 * 1024
"""A line without an end is shown in pieces of this size."""

_ESCAPES = re.compile(
    r"""
      (?: \x1b\[ | \x9b ) [0-?]* [ -/]* [@-~]                    # CSI: colours, cursor
    | (?: \x1b[\]PX^_] | [\x90\x98\x9d-\x9f] )                   # OSC, DCS, SOS, PM, APC: titles, links, clipboard
      [^\x07\x1b\x9c\n]* (?: \x07 | \x1b\\ | \x9c )?             #   up to its end, at most to the end of the line
    | \x1b [ -/]* [0-~]?                                         # every other escape
    """,
    re.VERBOSE,
)
_KEPT = {ord("\n"), ord("\t"), ord("\r")}
_DROPPED = dict.fromkeys(
    [
        *(code for code in range(0x20) if code not in _KEPT),
        *range(0x7F, 0xA0),
        0x061C,  # Arabic letter mark
        0x200E,  # left-to-right and right-to-left marks
        0x200F,
        *range(0x2028, 0x202F),  # line and paragraph separator, bidirectional embeddings and overrides
        *range(0x2066, 0x206A),  # bidirectional isolates
        0xFEFF,  # byte order mark
    ]
)
_ESCAPE_TAIL_BYTES = 256
"""An escape sequence that is longer is shown as the text it is."""


def clean(data: bytes) -> str:
    """`data` as lines of plain text; bytes that are not UTF-8 become U+FFFD."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace")).translate(_DROPPED)
    if "\r" not in text:
        return text
    return "\n".join(map(_folded, text.split("\n")))


def whole_lines(data: bytes) -> int:
    """How much of the beginning of `data` can be cleaned now without looking at what follows.

    Up to its last newline. A line longer than `MAX_LINE_BYTES` is cut at a carriage return, or where neither a
    character nor an escape sequence is split.
    """
    newline = data.rfind(b"\n") + 1
    if newline or len(data) < MAX_LINE_BYTES:
        return newline
    returned = data.rfind(b"\r") + 1
    return returned or _between_characters(data)


def _folded(line: str) -> str:
    """What a terminal shows of a line that a progress bar has drawn many times."""
    return next((part for part in reversed(line.split("\r")) if part), "")


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
