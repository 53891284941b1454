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
    0x034F,  # combining grapheme joiner
    0x061C,  # Arabic letter mark
    0x115F,  # Hangul fillers, here and below: letters without a shape
    0x1160,
    0x17B4,  # Khmer vowels without a shape
    0x17B5,
    0x180E,  # Mongolian vowel separator
    0x200B,  # zero width space; the joiner 0x200D is a part of emoji
    0x200E,  # left-to-right and right-to-left marks
    0x200F,
    *range(0x2028, 0x202F),  # line and paragraph separator, bidirectional embeddings and overrides
    *range(0x2060, 0x2070),  # word joiner, invisible operators, bidirectional isolates, shaping
    0x3164,
    *range(0xD800, 0xE000),  # halves of characters
    0xFEFF,  # byte order mark
    0xFFA0,
    *range(0xFFF9, 0xFFFC),  # interlinear annotations
)
_DROPPED_BEYOND = ((0x1D173, 0x1D17A), (0xE0000, 0xE0FFF))
"""Of musical notes; tags, which can spell a hidden text, and variants. `re` tries one after the other beyond U+FFFF."""
_DROPPED_ANY = re.compile(
    "["
    + "".join(f"\\U{code:08x}" for code in _DROPPED)
    + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in _DROPPED_BEYOND)
    + "]+"
)
OWN_LINE = "::gpurun::"
"""As `gpurun_agent.protocol.OWN`."""
MAX_BEGUN = 4096
"""Characters: nobody indents a line by more."""
NOT_OWN_LINE = "::gpurun:."
_WORKFLOW_COMMAND = re.compile(r"(?:^|(?<=\r))[^\S\n]*:(?=:)|##(?=\[)", re.MULTILINE)
_BEGUN_COMMAND = re.compile(r"(?:(?:^|(?<=\r))[^\S\n]*:?|##?)\Z", re.MULTILINE)
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


def clean_log(data: bytes) -> str:
    """The same for some of a log, whose lines of ours stay recognisable: no other line begins as they do.

    What cleaning has put together is told from what the agent wrote (`gpurun_agent.protocol.Foreign`) by its bytes.
    """
    text = clean(data)
    if OWN_LINE not in text:
        return text
    written = data.split(b"\n")
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if line.startswith(OWN_LINE) and not written[number].startswith(OWN_LINE.encode()):
            lines[number] = NOT_OWN_LINE + line.removeprefix(OWN_LINE)
    return "\n".join(lines)


def no_workflow_commands(text: str) -> str:
    """Lines that GitHub's runner shows, and takes none of for a command: `::name::` at the start, behind white space or
    not, and `##[name]` anywhere. A carriage return ends a line for it, too.

    Source: https://github.com/actions/runner, src/Runner.Common/ActionCommand.cs at 079cdb1, read 2026-12-02.
    """
    return _WORKFLOW_COMMAND.sub("\\g<0>\u200b", text)


def begun_command(text: str) -> str:
    """The end of `text` that decides whether what follows makes one, so that text can be written in pieces."""
    found = _BEGUN_COMMAND.search(text[-MAX_BEGUN:])
    return found[0] if found is not None else text[-1:]


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
