"""Unpacks a tar of a git commit (ustar with pax headers), and nothing that git would not write.

`tarfile` is missing from small images, and its safe filters from Python before 3.12.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

_BLOCK = 512
_COPY = 1024 * 1024
_MAX_PAX = 1024 * 1024


class BadTar(Exception):
    """The archive is broken, or wants to write where it may not. The message is for people."""


class Entry:
    """One member as its headers describe it."""

    __slots__ = ("kind", "link", "mode", "path", "size")

    def __init__(self, block: bytes, pax: dict[bytes, bytes]) -> None:
        name, prefix = _text(block[0:100]), _text(block[345:500])
        self.kind = block[156:157]
        self.path = pax.get(b"path", prefix + b"/" + name if prefix else name)
        self.link = pax.get(b"linkpath", _text(block[157:257]))
        self.mode = _octal(block[100:108])
        self.size = int(pax[b"size"]) if pax.get(b"size", b"").isdigit() else _octal(block[124:136])


class Unpacking:
    """Iterate to unpack one member at a time. Afterwards `commit` is known. Raises BadTar.

    Links are made as they are, wherever they point; nothing is ever written through one.
    """

    def __init__(self, file: BinaryIO, folder: str) -> None:
        self.commit = ""
        """From the global header; empty when there is none."""
        self._file = file
        self._root = os.fsencode(folder)
        self._real: set[bytes] = set()
        """Folders that were made or looked at; none of them can become something else, since no member removes one."""

    def __iter__(self) -> Iterator[None]:
        pax: dict[bytes, bytes] = {}
        while True:
            block = self._file.read(_BLOCK)
            if len(block) < _BLOCK:
                raise BadTar("The source archive ends too early.")
            if block == bytes(_BLOCK):
                return
            _check(block)
            entry = Entry(block, pax)
            if entry.kind in (b"g", b"x"):
                records = self._pax(entry.size)
                if entry.kind == b"g":
                    self.commit = records.get(b"comment", b"").decode("ascii", "replace")
                else:
                    pax = records
                continue
            self._unpack(entry)
            pax = {}
            yield

    def _pax(self, size: int) -> dict[bytes, bytes]:
        if size > _MAX_PAX:
            raise BadTar("The source archive has an endless header.")
        body = self._read_padded(size)
        records = {}
        while body:
            length, space, _ = body.partition(b" ")
            if not space or not length.isdigit() or not len(length) + 1 < int(length) <= len(body):
                raise BadTar("The source archive has a broken header.")
            key, _, value = body[len(length) + 1 : int(length) - 1].partition(b"=")
            records[key] = value
            body = body[int(length) :]
        return records

    def _read_padded(self, size: int) -> bytes:
        body = self._file.read(size + -size % _BLOCK)
        if len(body) < size:
            raise BadTar("The source archive ends too early.")
        return body[:size]

    def _unpack(self, entry: Entry) -> None:
        parts = _parts(entry.path)
        if entry.kind == b"5" or (entry.kind in (b"0", b"\0") and entry.path.endswith(b"/")):
            self._folder(parts)
        elif not parts:
            raise BadTar("The source archive has a member without a name.")
        elif entry.kind in (b"0", b"\0"):
            self._regular(entry, self._place(parts))
        elif entry.kind == b"2":
            self._symlink(entry, parts)
        else:
            raise BadTar("The source archive has %s, which is no file, folder or link." % _show(entry.path))

    def _folder(self, parts: list[bytes]) -> bytes:
        """Makes the folders of `parts`; each must be a real one, so that nothing is written through a link."""
        path = self._root
        if parts:
            path += b"/" + b"/".join(parts)
            if path in self._real:
                return path
            path = self._root
        for part in parts:
            path += b"/" + part
            if path in self._real:
                continue
            try:
                os.mkdir(path)
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    raise BadTar("The source archive writes through %s, which is no folder." % _show(path)) from None
            self._real.add(path)
        return path

    def _place(self, parts: list[bytes]) -> bytes:
        return self._folder(parts[:-1]) + b"/" + parts[-1]

    def _make_way(self, path: bytes) -> None:
        """A later member takes the place of an earlier one."""
        try:
            os.unlink(path)
        except OSError:
            raise BadTar("The source archive replaces the folder %s." % _show(path)) from None

    def _regular(self, entry: Entry, path: bytes) -> None:
        mode = 0o755 if entry.mode & 0o100 else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            fd = os.open(path, flags, mode)
        except FileExistsError:
            self._make_way(path)
            fd = os.open(path, flags, mode)
        try:
            # with its padding; most files come in one piece
            left, ahead = entry.size, entry.size + -entry.size % _BLOCK
            while ahead:
                data = self._file.read(min(ahead, _COPY))
                if not data:
                    raise BadTar("The source archive ends too early.")
                ahead -= len(data)
                view = memoryview(data)[:left]
                left -= len(view)
                while view:
                    view = view[os.write(fd, view) :]
        finally:
            os.close(fd)

    def _symlink(self, entry: Entry, parts: list[bytes]) -> None:
        if not entry.link or b"\0" in entry.link:
            raise BadTar("The source archive has a link %s to nowhere." % _show(entry.path))
        path = self._place(parts)
        try:
            os.symlink(entry.link, path)
        except FileExistsError:
            self._make_way(path)
            os.symlink(entry.link, path)


def _parts(path: bytes) -> list[bytes]:
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    if path.startswith(b"/") or b".." in parts or b"\0" in path:
        raise BadTar("The source archive wants to write to %s, outside of the work folder." % _show(path))
    for part in parts:
        # no tree of git has one: whoever sends it wants to be git's configuration
        if part[:4].lower() in (b".git", b"git~") and _is_git(part):
            raise BadTar("The source archive wants to write to %s, which is git's." % _show(path))
    return parts


def _is_git(part: bytes) -> bool:
    """Or what a file system takes for it."""
    return part.lower().partition(b":")[0].rstrip(b" .") in (b".git", b"git~1")


def _check(block: bytes) -> None:
    if sum(block[:148]) + sum(block[156:]) + 8 * 32 != _octal(block[148:156]):
        raise BadTar("The source archive has a broken header.")


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        raise BadTar("The source archive has a broken header.")
    return int(digits, 8) if digits else 0


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _show(path: bytes) -> str:
    return ascii(path.decode("utf-8", "replace"))[:200]
