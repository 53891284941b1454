"""Byte strings by key in a local folder: one file each, appended under a lock."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpurun.domain.errors import Bug, WrongOffset

PIECE_BYTES = 256 * 1024
SYNCS = 16
"""Calls at once that wait for the disk."""

_KEY = re.compile(r"[a-z0-9._-]+(?:/[a-z0-9._-]+)*")
_MAX_KEY_CHARS = 200


class FolderBlobs:
    """`ports.bytes.Blobs`. Keys: `[a-z0-9._-]` and `/` between parts, at most 200 characters; another one is a Bug.

    One flat file for each key, in 256 folders that are never removed, so that `a` and `a/b` can both be keys.

    After a crash inside `append` the end may stand within the bytes that were being written, never past them; the
    next append gets WrongOffset with that end and goes on from there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def append(self, key: str, offset: int, data: bytes) -> int:
        return await asyncio.to_thread(_append, self._path(key), offset, data)

    async def put(self, files: Mapping[str, bytes]) -> None:
        """All or, when it raises, none of them. After a crash inside any of them may be there in part."""
        await asyncio.to_thread(_put_all, {self._path(key): data for key, data in files.items()})

    async def size(self, key: str) -> int:
        return await asyncio.to_thread(_size, self._path(key))

    async def open(self, key: str, *, offset: int = 0) -> AsyncGenerator[bytes]:
        """Pieces of at most 256 KiB up to the end as it is while reading; nothing for a key that is not there."""
        file = await asyncio.to_thread(_open_to_read, self._path(key))
        if file is None:
            return
        try:
            while piece := await asyncio.to_thread(os.pread, file, PIECE_BYTES, offset):
                yield piece
                offset += len(piece)
        finally:
            os.close(file)

    async def delete(self, *keys: str) -> None:
        paths = [self._path(key) for key in keys]
        await asyncio.to_thread(_delete_all, paths)

    def _path(self, key: str) -> Path:
        if len(key) > _MAX_KEY_CHARS or not _KEY.fullmatch(key) or any(not part.strip(".") for part in key.split("/")):
            raise Bug(f"{key!r} is not a key of a blob")
        shard = hashlib.sha256(key.encode()).hexdigest()[:2]
        return self._folder / shard / key.replace("/", ",")


def _append(path: Path, offset: int, data: bytes) -> int:
    """Durable when it returns, nothing written when it raises."""
    with _locked(path) as file:
        end = os.fstat(file).st_size
        if end != offset:
            raise WrongOffset(end)
        try:
            _write_all(file, offset, data)
            os.fdatasync(file)
        except OSError:
            os.ftruncate(file, offset)
            raise
        if offset == 0:
            _sync_names(path)
        return offset + len(data)


def _put_all(files: Mapping[Path, bytes]) -> None:
    """Durable when it returns. The disk is waited for in several threads at once: it does the same for all of them."""
    with contextlib.ExitStack() as held, ThreadPoolExecutor(SYNCS) as syncs:
        opened: list[int] = []
        written: list[Path] = []
        try:
            for path, data in sorted(files.items()):  # in one order: two calls must not wait for each other
                opened.append(held.enter_context(_locked(path)))
                if os.pread(opened[-1], len(data) + 1, 0) == data:
                    continue  # what is on record already is never short for a moment
                written.append(path)
                os.ftruncate(opened[-1], 0)
                _write_all(opened[-1], 0, data)
            list(syncs.map(os.fdatasync, opened))
            list(syncs.map(_sync_folder, _folders_of(files)))
        except OSError:
            for path in written:
                path.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file that has this name now, locked against other threads and processes."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_still(path, file):
                yield file
                return
        finally:
            os.close(file)


def _is_still(path: Path, file: int) -> bool:
    """False when it was deleted while we waited for the lock."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _write_all(file: int, offset: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, offset)
        offset += written
        rest = rest[written:]


def _sync_names(path: Path) -> None:
    """Makes the name of a new file, and of its folder, durable."""
    for folder in _folders_of([path]):
        _sync_folder(folder)


def _folders_of(paths: Iterable[Path]) -> list[Path]:
    """Each once, the inner ones first."""
    folders = dict.fromkeys(path.parent for path in paths)
    return [*folders, *dict.fromkeys(folder.parent for folder in folders)]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _open_to_read(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None


def _delete_all(paths: Iterable[Path]) -> None:
    for path in paths:
        _delete(path)


def _delete(path: Path) -> None:
    """Waits for an append that is under way."""
    file = _open_to_read(path)
    if file is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        if _is_still(path, file):
            path.unlink()
    finally:
        os.close(file)
