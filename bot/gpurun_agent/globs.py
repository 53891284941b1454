"""Which paths a pattern of `artifacts` means. The bot's commands use the same.

Between slashes `*` is any bytes of a name, `?` one, `[a-c]` one of these, `[!a-c]` one of the others. `**` is any
number of folders. A pattern that names a folder means everything in it. A dot at the start of a name means nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    State = tuple[int, int]
    """A pattern, and how many of its parts the folders so far have used up."""


class Globs:
    """Patterns that are carried down a tree together, so that each name is looked at once however many there are."""

    def __init__(self, patterns: Iterable[bytes]) -> None:
        self._parts = [_parts_of(pattern) for pattern in patterns]

    def top(self) -> list[State]:
        """The state of the folder that the patterns are relative to."""
        return self._closed((number, 0) for number, parts in enumerate(self._parts) if parts is not None)

    def below(self, states: list[State], name: bytes) -> list[State]:
        """The state of the folder `name`; empty when nothing in it is meant."""
        return self._closed(self._steps(states, name))

    def meant(self, states: list[State], name: bytes) -> int:
        """The first pattern that means the file `name` of this folder; -1 for none."""
        return min(self.all_meant(states, name), default=-1)

    def all_meant(self, states: list[State], name: bytes) -> list[int]:
        """Every pattern that does."""
        return [number for number, at in self._steps(states, name) if self._is_end(number, at)]

    def match(self, path: bytes) -> int:
        """The same for a whole path."""
        *folders, name = path.split(b"/")
        states = self.top()
        for folder in folders:
            states = self.below(states, folder)
        return self.meant(states, name)

    def _steps(self, states: list[State], name: bytes) -> Iterable[State]:
        for number, at in states:
            parts = self._parts[number]
            assert parts is not None
            if at == len(parts) or parts[at] == b"**":
                yield number, at
            elif glob(name, parts[at]):
                yield number, at + 1

    def _closed(self, states: Iterable[State]) -> list[State]:
        """With what `**` for no folder at all leads to, each once."""
        found: dict[State, None] = {}
        for number, at in states:
            parts = self._parts[number]
            assert parts is not None
            found[number, at] = None
            while at < len(parts) and parts[at] == b"**":
                at += 1
                found[number, at] = None
        return list(found)

    def _is_end(self, number: int, at: int) -> bool:
        return at == len(self._parts[number] or ())


def _parts_of(pattern: bytes) -> list[bytes] | None:
    """Without `**` at the end, which changes nothing; None for a pattern that means nothing."""
    parts = [part for part in pattern.split(b"/") if part not in (b"", b".")]
    if b".." in parts or not pattern:
        return None
    while parts and parts[-1] == b"**":
        parts.pop()
    return parts


def glob(name: bytes, pattern: bytes) -> bool:
    """`*`, `?` and `[…]` over one name. Time is the product of both lengths at most: after a mismatch only the last
    `*` takes one byte more.
    """
    at = part = resume = 0
    star = -1
    while at < len(name):
        if pattern[part : part + 1] == b"*":
            star, resume = part, at
            part += 1
            continue
        behind = _behind_item(name[at], pattern, part)
        if behind:
            at, part = at + 1, behind
        elif star >= 0:
            resume += 1
            at, part = resume, star + 1
        else:
            return False
    return not pattern[part:].strip(b"*")


def _behind_item(byte: int, pattern: bytes, part: int) -> int:
    """Where the pattern goes on when its item at `part` matches `byte`; 0 when it does not."""
    if part >= len(pattern):
        return 0
    if pattern[part : part + 1] == b"[":
        end = pattern.find(b"]", part + 2)
        if end > 0:
            return end + 1 if _in_class(byte, pattern[part + 1 : end]) else 0
    return part + 1 if pattern[part] in (byte, ord("?")) else 0


def _in_class(byte: int, members: bytes) -> bool:
    wanted = True
    if members[:1] in (b"!", b"^"):
        wanted, members = False, members[1:]
    at = 0
    found = False
    while at < len(members):
        if members[at + 1 : at + 2] == b"-" and at + 2 < len(members):
            found = found or members[at] <= byte <= members[at + 2]
            at += 3
        else:
            found = found or byte == members[at]
            at += 1
    return found == wanted
