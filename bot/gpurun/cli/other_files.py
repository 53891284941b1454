"""Where else in this checkout a `.gpurun.yml` lies, for who has none where it was looked for."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from gpurun.cli.the_file import top_of
from gpurun.domain.folder import MAX_DEPTH, config_path, typed_folder

SHOWN = 3
MAX_FOLDERS = 2_000
"""That are looked into, the highest first: a person waits for it."""
_FOREIGN = frozenset({"node_modules", "site-packages", "third_party", "vendor", "venv"})


def hint_by_path(start: Path | None = None) -> str:
    """What to type after any command; empty when there is no other file."""
    found = _folders(top_of(start))
    if not found:
        return ""
    return f"{_told(found)} Type `--path {found[0]}`, or go there."


def _told(found: tuple[str, ...]) -> str:
    more = " and others" if len(found) > SHOWN else ""
    is_one = len(found) == 1
    return f"There {'is one' if is_one else 'are files'} in {', '.join(found[:SHOWN])}{more}."


def _folders(top: Path) -> tuple[str, ...]:
    """Below the top, the highest first; at most one more than is shown."""
    found: list[str] = []
    todo = deque([""])
    for _ in range(MAX_FOLDERS):
        if not todo or len(found) > SHOWN:
            break
        folder = todo.popleft()
        if folder and (top / config_path(folder)).is_file():
            found.append(folder)
        if folder.count("/") < MAX_DEPTH - 1:
            todo.extend(_inside(top, folder))
    return tuple(found)


def _inside(top: Path, folder: str) -> Iterator[str]:
    """Those that can be typed, in order. Links are not followed."""
    try:
        with os.scandir(top / folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in names:
        path = f"{folder}/{name}" if folder else name
        if not name.startswith(".") and name not in _FOREIGN and _is_typable(path):
            yield path


def _is_typable(folder: str) -> bool:
    try:
        return typed_folder(folder) == folder
    except ValueError:
        return False
