"""The lines of a Dockerfile: what is a comment, what goes on in the next line, and what an `ARG` names.

Where engines of different ages read a line differently, it is `doubtful`: whoever must know what is built refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_DIRECTIVE = re.compile(r"#[ \t]*([A-Za-z][A-Za-z0-9]*)[ \t]*=[ \t]*(.+)")
_DIRECTIVES = frozenset({"escape", "syntax", "check"})
_ESCAPES = frozenset({"\\", "`"})
_ARG_WORD = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\])+""")


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction with its continued lines joined, or a directive."""

    text: str
    first: int
    last: int
    directive: str = ""
    """`syntax` of `# syntax=…`; empty for an instruction."""
    doubtful: str = ""
    """What engines do not agree about; empty most often."""


def lines_of(text: str) -> Iterator[Line]:
    r"""In order, without comments. `text` has `\n` line ends."""
    escape, may_direct, is_head = "\\", True, True
    kept, first, doubtful = "", 0, ""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        bare = line.strip()
        directive = _DIRECTIVE.match(bare) if is_head else None
        name = directive[1].lower() if directive is not None else ""
        if directive is not None and name in _DIRECTIVES and (may_direct or name == "escape"):
            if name == "escape" and number == 1 and directive[2] in _ESCAPES:
                escape = directive[2]
            elif name == "escape":
                doubtful = "`# escape=` that is not alone in the first line"
            yield Line(bare, number, number, name, doubtful)
            doubtful = ""
            continue
        may_direct = False
        if bare.startswith("#") or (not bare and (kept or not first)):
            continue
        is_head, first = False, first or number
        goes_on = re.search(re.escape(escape) + r"[ \t]*$", line)
        if goes_on is not None and line[: goes_on.start()].endswith(escape):
            doubtful = f"a line that ends with {escape}{escape}"
        kept += line[: goes_on.start()] if goes_on else line
        if not goes_on:
            yield Line(kept.strip(), first, number, doubtful=doubtful)
            kept, first, doubtful = "", 0, ""
    if first:
        yield Line(kept.strip(), first, len(lines), doubtful=doubtful)


def split_word(text: str) -> tuple[str, str]:
    """The word of an instruction in capitals, and what stands behind it."""
    word, _, rest = text.partition(" ") if "\t" not in text.split(" ", maxsplit=1)[0] else text.partition("\t")
    return word.upper(), rest.lstrip(" \t")


def args_in(rest: str) -> Iterator[tuple[str, str | None]]:
    """Name and value, as it is written, of each argument behind `ARG`; None for one without a value."""
    for word in _ARG_WORD.findall(rest):
        name, has_value, value = word.partition("=")
        yield name, value if has_value else None
