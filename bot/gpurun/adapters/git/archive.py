"""One tar of several: the commit, its submodules in their places, and the content of LFS files over their pointers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable

from gpurun.adapters.git.tree import GITLINK, LINK, Entry
from gpurun.domain.errors import SourceUnavailable

BLOCK = 512
END = bytes(2 * BLOCK)
_GLOBAL = b"g"
_NAME_BYTES = 100
"""Of a name, and of the target of a link, in the header itself."""


class Members:
    """Cuts the members out of a tar that comes in pieces: its end, and with `inner` its global header, are left out.

    Of archives as git makes them: sizes in octal digits.
    """

    def __init__(self, *, inner: bool) -> None:
        self._inner = inner
        self._head = b""
        self._body = 0
        """Bytes of the current member that are still to come, with their padding."""
        self._dropping = False
        self.over = False
        """The end was seen."""

    def feed(self, piece: bytes) -> bytes:
        """What of it, and of what was held back, belongs to members."""
        data = self._head + piece
        self._head = b""
        kept: list[bytes] = []
        at = start = 0
        while at < len(data) and not self.over:
            if self._body:
                step = min(self._body, len(data) - at)
                self._body -= step
                at += step
            elif self._dropping:
                self._dropping, start = False, at
            elif len(data) - at < BLOCK:
                break
            elif data[at : at + BLOCK].count(0) == BLOCK:
                self.over = True
            else:
                kept += self._begin(data, start, at)
                start = at if not self._dropping else start
                at += BLOCK
        if not self._dropping:
            kept.append(data[start:at])
        self._head = b"" if self.over else data[at:]
        return b"".join(kept)

    def _begin(self, data: bytes, start: int, at: int) -> list[bytes]:
        """A member's header is at `at`; what stands before it, when it was not taken yet."""
        size = int(data[at + 124 : at + 136].rstrip(b"\0 ") or b"0", 8)
        self._body = _padded(size)
        self._dropping = self._inner and data[at + 156 : at + 157] == _GLOBAL
        return [data[start:at]]


async def members(pieces: AsyncIterator[bytes], *, inner: bool) -> AsyncIterator[bytes]:
    """The members of that archive. Raises SourceUnavailable when it has no end."""
    cut = Members(inner=inner)
    async for piece in pieces:
        if kept := cut.feed(piece):
            yield kept
    if not cut.over:
        raise SourceUnavailable("git archive ended without an end")


def file_head(path: str, size: int, *, is_program: bool) -> bytes:
    """What stands in front of a file's bytes: its name as a pax header, then the header itself."""
    record = _record(b"path", os.fsencode(path))
    return (
        _header(b"pax", len(record), b"x", 0o644)
        + record
        + bytes(-len(record) % BLOCK)
        + _header(b"file", size, b"0", 0o755 if is_program else 0o644)
    )


def file_bytes(path: str, size: int) -> int:
    """What a file takes behind `file_head`, with it."""
    return len(file_head(path, size, is_program=False)) + _padded(size)


def entry_bytes(path: str, size: int, *, is_link: bool = False) -> int:
    """What an entry of a tree takes in git's archive, at most: git may cut a long name in two and need no pax header.

    `is_link`: symbolic, whose target has `size` bytes. A folder's path ends with `/`.
    Source: write_tar_entry in git's archive-tar.c, 2.39.
    """
    name = os.fsencode(path)
    records = len(_record(b"path", name)) if len(name) > _NAME_BYTES else 0
    if is_link and size > _NAME_BYTES:
        records += len(_record(b"linkpath", bytes(size)))
    pax = BLOCK + _padded(records) if records else 0
    return pax + BLOCK + (0 if is_link else _padded(size))


def tree_bytes(entries: Iterable[Entry], *, folder: str = "") -> int:
    """What these take with their folders in git's archive below `folder`, at most. Its two ends are not counted."""
    prefix = f"{folder}/" if folder else ""
    folders = {prefix} if folder else set()
    n_bytes = 0
    for entry in entries:
        path = prefix + entry.path
        if entry.mode == GITLINK:  # an empty folder
            folders.add(f"{path}/")
        else:
            n_bytes += entry_bytes(path, entry.size, is_link=entry.mode == LINK)
        end = path.rfind("/") + 1
        while end and path[:end] not in folders:
            folders.add(path[:end])
            end = path.rfind("/", 0, end - 1) + 1
    return n_bytes + sum(entry_bytes(one, 0) for one in folders)


def _padded(size: int) -> int:
    return size + -size % BLOCK


def _record(key: bytes, value: bytes) -> bytes:
    """`<length> key=value` and a line end, where the length counts its own digits."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %b=%b\n" % (length, key, value)


def _header(name: bytes, size: int, kind: bytes, mode: int) -> bytes:
    block = bytearray(BLOCK)
    fields = (
        (0, name),
        (100, b"%07o\0" % mode),
        (108, b"0000000\0"),
        (116, b"0000000\0"),
        (124, b"%011o\0" % size),
        (136, b"00000000000\0"),
        (148, b"        "),
        (156, kind),
        (257, b"ustar\x0000"),
    )
    for at, value in fields:
        block[at : at + len(value)] = value
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)
