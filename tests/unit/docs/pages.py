"""The repository's pages, their code and their links."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def tracked() -> list[Path]:
    """Every file of the repository, also those that are not added yet."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, check=True, timeout=30).stdout
    return [path for name in listed.decode().split("\0") if name and (path := ROOT / name).is_file()]


def pages() -> list[Path]:
    """Every Markdown page."""
    return [path for path in tracked() if path.suffix == ".md"]


def name_of(path: Path) -> str:
    """As people write it."""
    return str(path.relative_to(ROOT))


def fences(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block of code."""
    return _FENCE.findall(page.read_text("utf-8"))


def inline_code(page: Path) -> list[str]:
    """What stands in single backquotes outside of blocks."""
    return _INLINE.findall(_FENCE.sub("", page.read_text("utf-8")))


def links(page: Path) -> list[str]:
    """Targets, outside of code."""
    return _LINK.findall(_INLINE.sub("", _FENCE.sub("", page.read_text("utf-8"))))


def tables(text: str) -> list[list[str]]:
    """Cells of every row of every table, without heads and rules."""
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in text.splitlines() if line[:1] == "|"
    ]
    rules = [at for at, row in enumerate(rows) if all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    return [row for at, row in enumerate(rows) if at not in rules and at + 1 not in rules]


def section(text: str, title: str) -> str:
    """The text under the heading that starts with `title`."""
    found = re.search(rf"^## {re.escape(title)}.*?$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"there is no section {title!r}"
    return found[1]
