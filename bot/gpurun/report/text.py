r"""Foreign text as Markdown that stays data, and numbers as people read them.

Whatever comes from a job, a comment, a config or a provider goes through one of `prose`, `code`, `plain` or `fenced`.
Sizes are counted in UTF-8 bytes, which is never less than the characters or UTF-16 units that GitHub counts.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from gpurun.domain.text import clean

_MARKDOWN = re.compile(r"([\\`*\[\]#|~$<>]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
"""An underscore inside of a word is no Markdown, and a notification shows the backslash."""
_REFERENCES = (
    (re.compile(r"(?<![A-Za-z0-9])@(?=[\w-])"), "@\u200b"),  # mentions; `name@sha256:…` is none
    (re.compile(r"@(?=[\w-]+\.[\w-])"), "@\u200b"),  # addresses of mail
    (re.compile(r"#(?=\d)"), "#\u200b"),  # `fixes #1`, `owner/name#1`
    (re.compile(r"\b(GH)-(?=\d)", re.IGNORECASE), "\\1\u200b-"),
    (re.compile(r"://"), ":\u200b//"),  # links, also to other issues
    (re.compile(r"\b(www)\.", re.IGNORECASE), "\\1\u200b."),
)
_LOOKED_AT = 8
"""Times what is shown: cleaning may take some of it away."""
_NUMBERED = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")
_CODE = re.compile(r"`([^`\n]+)`")


def one_line(text: str, max_bytes: int = 1000) -> str:
    """Clean text in one line, cut at the end."""
    looked_at = text[: _LOOKED_AT * max_bytes]
    line = " ".join(clean(looked_at).split())
    return cut(line if len(looked_at) == len(text) else f"{line}…", max_bytes)


def cut(text: str, max_bytes: int) -> str:
    """The beginning of the text, with `…` when something is missing."""
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    return data[: max(0, max_bytes - 3)].decode("utf-8", "ignore") + "…"


def plain(text: str, max_bytes: int = 250) -> str:
    """For titles, which know no Markdown: one line in which nothing is a mention, reference or link."""
    return cut(_without_references(one_line(text, max_bytes).replace("`", "'")), max_bytes)


def prose(text: str, max_bytes: int = 1000) -> str:
    """For a sentence of Markdown: pieces in backquotes become code, everything else is shown as it is."""
    pieces = _CODE.split(one_line(text, max_bytes))
    told = "".join(code(piece) if number % 2 else _escaped(piece) for number, piece in enumerate(pieces))
    # at the start of a line these would be a command of ours or a list
    return f"\\{told}" if told.startswith(("/", "-", "+")) else _NUMBERED.sub(r"\1\\\2", told)


def code(text: str, max_bytes: int = 300) -> str:
    """Inline code, also inside a table; nothing in it is a mention or link."""
    line = one_line(text, max_bytes)
    if not line:
        return ""
    fence = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line.replace('|', chr(0xFF5C))}{pad}{fence}"


def fenced(text: str, info: str = "text") -> str:
    """A code block that no line of the text can close."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{info}\n{text}\n{fence}"


def link(label: str, url: str) -> str:
    """A link around Markdown of ours, or just the label when there is no address."""
    return f"[{label}]({url})" if re.fullmatch(r"https?://(?:(?![()<>`\\])[!-~])+", url) else label


def table(head: tuple[str, ...], *rows: tuple[str, ...]) -> str:
    """Cells are Markdown already."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _escaped(text: str) -> str:
    return _without_references(_MARKDOWN.sub(r"\\\1", text.replace("&", "&amp;")))


def _without_references(text: str) -> str:
    for pattern, instead in _REFERENCES:
        text = pattern.sub(instead, text)
    return text


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


# numbers


def duration(seconds: float) -> str:
    """`0.4 s`, `41 s`, `6 m 40 s`, `1 h 02 m`."""
    if seconds < 0:
        return "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} m"


def between(start: datetime | None, end: datetime | None) -> str:
    """The time between two moments; empty when one is unknown."""
    return duration((end - start) / timedelta(seconds=1)) if start and end else ""


def usd(micro: int) -> str:
    """Four digits below a dollar when they say something, two above; what was spent never reads as nothing."""
    if micro < 0:
        return "-" + usd(-micro)
    if 0 < micro < 100:
        return "< $0.0001"
    if micro >= 1_000_000:
        cents = (micro + 5_000) // 10_000
        return f"${cents // 100:,}.{cents % 100:02d}"
    digits = f"{(micro + 50) // 100:04d}"
    if len(digits) > 4:
        return "$1.00"
    return f"$0.{digits[:2]}" if digits.endswith("00") else f"$0.{digits}"


def size(n_bytes: float) -> str:
    """`120 B`, `12 kB`, `4.5 MB`: 1,000 to the next."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 999.5:
            return f"{n_bytes:.0f} {unit}" if unit == "B" or n_bytes >= 99.95 else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"


def clock(moment: datetime) -> str:
    """`12:00:41 UTC`."""
    return f"{moment:%H:%M:%S} UTC"
