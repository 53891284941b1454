"""What `.dockerignore` leaves out of a context, as Docker's command line does it. Pure.

Source: `patternmatcher` of the moby project (2026-12-01). A pattern that matches a folder matches all below it, later
lines win, and `!` brings back.

All patterns go along a path together, each as bits of one number: a bit says that the items before it have matched.
A character moves them all, so that no pattern makes anybody try again, whatever it is made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from gpurun.domain.errors import ConfigError

MAX_WORK = 2**33
"""Characters of names times items of patterns: 31 million characters with some patterns, which take 13 s, and 130
thousand with 64 KiB of them, which take 2 s (measured on 2 cores of 2026, in use).
"""
_WORK_OF_A_CHARACTER = 256
"""What it costs without any pattern, in items."""


class _Star(Enum):
    NAME = "*"
    ANY = "**"
    FOLDERS = "**/"
    """Two bits: nothing of it has been met; some of it has, which a slash must end."""


@dataclass(frozen=True, slots=True)
class _Class:
    """`[…]`; `?` is the one of anything but a slash."""

    ranges: tuple[tuple[str, str], ...]
    is_negated: bool

    def has(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) is not self.is_negated


_ANY_OF_A_NAME = _Class((("/", "/"),), is_negated=True)
_Item = str | _Star | _Class


@dataclass(slots=True)
class _Items:
    """Of all patterns, one behind the other; each has a bit, and its end another one."""

    count: int = 0
    starts: int = 0
    ends: dict[int, bool] = field(default_factory=dict)
    """By bit: whether the pattern keeps out."""
    all_ends: int = 0
    chars: dict[str, int] = field(default_factory=dict)
    classes: dict[_Class, int] = field(default_factory=dict)
    stars: dict[_Star, int] = field(default_factory=lambda: dict.fromkeys(_Star, 0))

    def add(self, pattern: list[_Item], *, keeps_out: bool) -> None:
        """Behind the others."""
        self.starts |= 1 << self.count
        for item in pattern:
            bit = 1 << self.count
            self.count += 2 if item is _Star.FOLDERS else 1
            if isinstance(item, _Star):
                self.stars[item] |= bit
            elif isinstance(item, _Class):
                self.classes[item] = self.classes.get(item, 0) | bit
            else:
                self.chars[item] = self.chars.get(item, 0) | bit
        self.ends[self.count] = keeps_out
        self.all_ends |= 1 << self.count
        self.count += 1


class Ignored:
    """Made of the text of a `.dockerignore`. A line that is no pattern is passed over."""

    def __init__(self, text: str) -> None:
        self._items = _Items()
        for line in text.splitlines():
            keeps_out, written = _written(line)
            pattern = _pattern(written)
            if pattern:
                self._items.add(pattern, keeps_out=keeps_out)
        stars = self._items.stars
        self._folders = stars[_Star.FOLDERS]
        self._stars = stars[_Star.NAME] | stars[_Star.ANY]
        self._moves: dict[str, tuple[int, int]] = {}
        """By character: the bits that go on with it, and those that stay."""
        self._folder: tuple[str, int, int] = ("", self._closed(self._items.starts), 0)
        """The last one that was asked about: its path, the bits behind its slash, and the ends that it or one above it
        has reached.
        """
        self._work = 0

    def __call__(self, path: str) -> bool:
        """Whether that path, from the top of the context, stays out. Raises ConfigError after too much work."""
        if not self._items.count:
            return False
        folder, slash, name = path.rpartition("/")
        bits, met = self._in_folder(folder + slash)
        bits = self._along(name, bits)
        met |= bits & self._items.all_ends
        return bool(met) and self._items.ends[met.bit_length() - 1]

    def _in_folder(self, folder: str) -> tuple[int, int]:
        if folder != self._folder[0]:
            bits, met = self._closed(self._items.starts), 0
            for part in folder.split("/")[:-1]:
                bits = self._along(part, bits)
                met |= bits & self._items.all_ends
                bits = self._along("/", bits)
            self._folder = folder, bits, met
        return self._folder[1:]

    def _along(self, text: str, bits: int) -> int:
        self._work += len(text) * (self._items.count + _WORK_OF_A_CHARACTER)
        if self._work > MAX_WORK:
            raise ConfigError(
                "`.dockerignore` has too many patterns for so many paths", hint="Write fewer or shorter patterns."
            )
        for char in text:
            goes_on, stays = self._moves.get(char) or self._moves_of(char)
            bits = self._closed((bits & goes_on) << 1 | bits & stays)
        return bits

    def _closed(self, bits: int) -> int:
        """With what comes behind stars, which may match nothing. Beside another star stands `**/` before it at most."""
        folders = bits & self._folders
        bits |= folders << 1 | folders << 2
        return bits | (bits & self._stars) << 1

    def _moves_of(self, char: str) -> tuple[int, int]:
        items = self._items
        in_folders = items.stars[_Star.FOLDERS] << 1
        goes_on = items.chars.get(char, 0) | (in_folders if char == "/" else 0)
        for one, bits in items.classes.items():
            goes_on |= bits if one.has(char) else 0
        stays = items.stars[_Star.ANY] | in_folders | (items.stars[_Star.NAME] if char != "/" else 0)
        self._work += len(items.classes) * items.count
        self._moves[char] = goes_on, stays
        return self._moves[char]


def _written(line: str) -> tuple[bool, str]:
    """Whether it keeps out, and its pattern; empty for a comment."""
    text = line.removeprefix("\ufeff")
    if text.startswith("#"):
        return True, ""
    text = text.strip()
    return not text.startswith("!"), _clean(text.removeprefix("!").strip())


def _clean(text: str) -> str:
    """Without `.`, `..` and empty parts, as Go's `filepath.Clean` and then without the first slash."""
    kept: list[str] = []
    for part in text.split("/"):
        if part == ".." and kept:
            kept.pop()
        elif part not in {"", ".", ".."}:
            kept.append(part)
    return "/".join(kept)


def _pattern(text: str) -> list[_Item]:
    """Its items; none when it is no pattern. Stars that change nothing beside another one are left out."""
    made: list[_Item] = []
    for item in _items_of(text):
        if item is None:
            return []
        before = made[-1] if made else None
        if isinstance(item, _Star) and isinstance(before, _Star):
            if before is item or before is _Star.ANY:
                continue
            if item is _Star.ANY:
                made.pop()
        made.append(item)
    return made


def _items_of(text: str) -> Iterator[_Item | None]:
    """None: it is no pattern."""
    at = 0
    while at < len(text):
        char, end = text[at], at + 1
        if text.startswith("**", at):
            yield _Star.FOLDERS if text.startswith("/", at + 2) else _Star.ANY
            end = at + (3 if text.startswith("/", at + 2) else 2)
        elif char == "*":
            yield _Star.NAME
        elif char == "?":
            yield _ANY_OF_A_NAME
        elif char == "\\" and end < len(text):
            yield text[end]
            end += 1
        elif char == "[" and "]" in text[end:]:
            found, end = _class_at(text, end)
            yield found
        else:
            yield char
        at = end


def _class_at(text: str, at: int) -> tuple[_Class | None, int]:
    """The class whose `[` stands before `at`, and where it ends."""
    is_negated = text.startswith("^", at)
    at += is_negated
    members: list[tuple[str, bool]] = []
    while at < len(text) and text[at] != "]":
        is_escaped = text[at] == "\\" and at + 1 < len(text)
        at += is_escaped
        members.append((text[at], is_escaped))
        at += 1
    if at == len(text) or not members:
        return None, len(text)
    ranges: list[tuple[str, str]] = []
    number = 0
    while number < len(members):
        low = high = members[number][0]
        if members[number + 1 : number + 2] == [("-", False)] and number + 2 < len(members):
            high = members[number + 2][0]
            number += 2
        if low > high:
            return None, len(text)
        ranges.append((low, high))
        number += 1
    return _Class(tuple(ranges), is_negated), at + 1
