"""Whether a tree can be unpacked without leaving its folder; git's own checks of objects come before."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpurun.adapters.git.tree import GITLINK, LINK, Entry
from gpurun.domain.errors import PinNotFound
from gpurun.domain.quantity import quoted

# What some file system takes for `.git`, too. Source: git's path.c and utf8.c (is_ntfs_dotgit, is_hfs_dotgit), 2.39.
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_BAD_NAME = re.compile(r"(?:^|/)(?:\.{0,2}|(?:\.git|git~1)[ .]*(?::[^/]*)?)(?:/|$)", re.IGNORECASE)
_KINDS = (b"100", LINK, GITLINK)


def require_safe(entries: Sequence[Entry]) -> None:
    """Raises PinNotFound naming the entry."""
    links: dict[str, str] = {}
    for entry in entries:
        name = entry.path if entry.path.isascii() else _IGNORED.sub("", entry.path)
        if _BAD_NAME.search(name):
            raise PinNotFound(f"The commit holds {quoted(entry.path)}, which would be written outside of its folder.")
        if not entry.mode.startswith(_KINDS):
            raise PinNotFound(f"The commit holds {quoted(entry.path)}, which is no file, link or submodule.")
        if entry.mode == LINK:
            links[entry.path.casefold()] = entry.path
    if links:
        _require_no_detour(entries, links)


def _require_no_detour(entries: Sequence[Entry], links: dict[str, str]) -> None:
    """No file lies below a link, whatever a file system makes of upper and lower case."""
    for entry in entries:
        parts = entry.path.casefold().split("/")
        for end in range(1, len(parts)):
            link = links.get("/".join(parts[:end]))
            if link is not None:
                raise PinNotFound(
                    f"The commit holds {quoted(entry.path)}, which would be written through the link {quoted(link)}.",
                    hint="Some file systems take both names for one. Rename one of the two.",
                )
