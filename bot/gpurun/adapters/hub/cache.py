"""Model files on the bot's disk, by content: `<cache>/<owner--name>/<sha256>`, one folder for each repository.

Nothing is served that was not hashed by this process. What a broken download left (`<sha256>.part`) is continued.
All functions block; the hub calls them in threads.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from gpurun.domain.errors import HubUnavailable

PIECE_BYTES = 256 * 1024
_HASH_PIECE_BYTES = 1024 * 1024
_DISK_MARGIN_BYTES = 64 * 1024 * 1024


class RepoCache:
    """The cached files of one repository. Access to one repository never reveals the bytes of another."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._verified: dict[str, tuple[int, int, int]] = {}

    def find(self, sha256: str, size: int) -> Path | None:
        """The file, if it is there and right. Hashes it once per process and state on disk; a wrong one is removed."""
        path = self._folder / sha256
        try:
            state = _state(path)
        except FileNotFoundError:
            return None
        if self._verified.get(sha256) == state:
            return path
        if state[0] != size or _sha256_of(path) != sha256:
            path.unlink(missing_ok=True)
            return None
        self._verified[sha256] = state
        return path

    def sha256_of_blob(self, oid: str, size: int) -> str | None:
        """The SHA-256 of a small file that was stored under this git blob id, from bytes that match both."""
        try:
            sha256 = (self._folder / "oid" / oid).read_text("ascii", "replace")
            data = (self._folder / sha256).read_bytes()
        except (OSError, ValueError):
            return None
        if len(data) != size or git_blob_id(data) != oid or hashlib.sha256(data).hexdigest() != sha256:
            return None
        return sha256

    def put_blob(self, oid: str, data: bytes) -> str:
        """Stores a small file; its SHA-256."""
        sha256 = hashlib.sha256(data).hexdigest()
        _write(self._folder / sha256, data)
        _write(self._folder / "oid" / oid, sha256.encode())
        return sha256

    def part(self, sha256: str, size: int) -> Part | None:
        """The unfinished file, ours alone until it is closed; None while somebody else has it.

        Raises HubUnavailable when the disk has no room for the rest of it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{sha256}.part"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(path.stat(), os.fstat(file)):
                _require_room(self._folder, size - os.fstat(file).st_size)
                return Part(path, file, size)
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        return None

    def keep(self, part: Part, sha256: str) -> None:
        """The finished part becomes the file: on disk whole before it has the name."""
        part.rename_to(self._folder / sha256)
        self._verified[sha256] = _state(self._folder / sha256)


class Part:
    """A file that is being downloaded, locked by this process.

    A cancelled caller closes it while a thread may still be writing; a write after `close` must not hit another file
    that got the same descriptor, hence the lock.
    """

    def __init__(self, path: Path, file: int, size: int) -> None:
        self._path = path
        self._file = file
        if os.fstat(file).st_size > size:
            os.ftruncate(file, 0)
        self.found = os.fstat(file).st_size
        """Bytes that an earlier download left."""
        self._end = self.found
        self._open = threading.Lock()
        self._closed = False

    def pieces(self) -> Iterator[bytes]:
        """Those bytes."""
        for at in range(0, self.found, PIECE_BYTES):
            yield os.pread(self._file, min(PIECE_BYTES, self.found - at), at)

    def write(self, data: bytes) -> None:
        """Appends; nothing when it is closed."""
        rest = memoryview(data)
        with self._open:
            while rest and not self._closed:
                written = os.pwrite(self._file, rest, self._end)
                self._end += written
                rest = rest[written:]

    def rename_to(self, path: Path) -> None:
        """On disk first, then the name."""
        with self._open:
            if self._closed:
                return
            file = os.dup(self._file)
        try:
            os.fsync(file)
            self._path.rename(path)
        finally:
            os.close(file)

    def discard(self) -> None:
        """The next download starts from nothing."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Lets the lock go; what is not renamed or discarded waits for the next try."""
        with self._open:
            self._closed = True
            os.close(self._file)


def git_blob_id(data: bytes) -> str:
    """The name that git gives a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _require_room(folder: Path, n_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < n_bytes + _DISK_MARGIN_BYTES:
        raise HubUnavailable(
            f"The bot's disk has {free >> 20} MiB free, but {n_bytes >> 20} MiB are to be downloaded to it. "
            f"Free space in {folder.parent}."
        )


def _state(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def _sha256_of(path: Path) -> str:
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_HASH_PIECE_BYTES):
            hasher.update(piece)
    return hasher.hexdigest()


def _write(path: Path, data: bytes) -> None:
    """All or nothing, under a name that only a complete file ever has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as draft:
        try:
            draft.write(data)
            draft.flush()
            os.fsync(draft.fileno())
            Path(draft.name).rename(path)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise
