"""Foreign text as lines of plain text that are safe and pleasant to look at. Views clean; what is stored stays raw.

Escape sequences of terminals, control, invisible and direction characters go; a carriage return starts its line anew.
The result is still untrusted text: whoever puts it into HTML or Markdown escapes it.
"""

from __future__ import annotations

import re

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
_DROPPED = (
    *(code for code in range(0x20) if code not in _KEPT),
    *range(0x7F, 0xA0),
    0x00AD,  # soft hyphen
    0x061C,  # Arabic letter mark
    0x180E,  # Mongolian vowel separator
    0x200B,  # zero width space; the joiner 0x200D is a part of emoji
    0x200E,  # left-to-right and right-to-left marks
    0x200F,
    *range(0x2028, 0x202F),  # line and paragraph separator, bidirectional embeddings and overrides
    *range(0x2060, 0x206A),  # word joiner, invisible operators, bidirectional isolates
    *range(0xD800, 0xE000),  # halves of characters
    0xFEFF,  # byte order mark
    *range(0xFFF9, 0xFFFC),  # interlinear annotations
)
_DROPPED_ANY = re.compile("[" + "".join(f"\\U{code:08x}" for code in _DROPPED) + "]+")
_STARTS_ESCAPE = re.compile("[\x1b\x90\x98\x9b\x9d-\x9f]")
_DROPPED_ASCII = bytes(code for code in _DROPPED if code < 0x80)


def clean(text: str | bytes) -> str:
    """`text` as lines of plain text; bytes that are not UTF-8 become U+FFFD."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    if text.isascii():  # ten times as fast, and most of a log is
        text = _ESCAPES.sub("", text) if "\x1b" in text else text
        text = text.encode("ascii").translate(None, _DROPPED_ASCII).decode("ascii")
    else:
        text = _DROPPED_ANY.sub("", _ESCAPES.sub("", text) if _STARTS_ESCAPE.search(text) else text)
    if "\r" not in text:
        return text
    return "\n".join(map(_folded, text.split("\n")))


def laid_open(text: str) -> str:
    """One line in which everything is seen: what `clean` would drop stands there by its number.

    For people who must see what a text really holds before they allow it.
    """
    return _DROPPED_ANY.sub(_named, text).replace("\r", "\\r").replace("\t", "    ")


def _named(found: re.Match[str]) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in found.group())


def _folded(line: str) -> str:
    """What a terminal shows of a line that a progress bar has drawn many times."""
    return next((part for part in reversed(line.split("\r")) if part), "")
