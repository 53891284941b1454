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
from collections import defaultdict
from pathlib import Path

from gpurun.adapters.hub.part import Part
from gpurun.domain.errors import HubUnavailable

_HASH_PIECE_BYTES = 1024 * 1024
_DISK_MARGIN_BYTES = 64 * 1024 * 1024


class RepoCache:
    """The cached files of one repository. Access to one repository never reveals the bytes of another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._verified: dict[str, tuple[int, int, int]] = {}
        self._hashing: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def find(self, sha256: str, size: int) -> Path | None:
        """The file, if it is there and right. Hashes it once per process and state on disk; a wrong one is removed.

        Raises HubUnavailable when the disk refuses that.
        """
        path = self.folder / sha256
        try:
            if not path.exists():
                return None
            with self._hashing[sha256]:  # who comes second reads no bytes
                return self._find(path, sha256, size)
        except FileNotFoundError:  # removed meanwhile
            return None
        except OSError as exc:
            raise unreadable(path, exc) from exc

    def _find(self, path: Path, sha256: str, size: int) -> Path | None:
        state = _state(path)
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
            sha256 = (self.folder / "oid" / oid).read_text("ascii", "replace")
            data = (self.folder / sha256).read_bytes()
        except (OSError, ValueError):
            return None
        if len(data) != size or git_blob_id(data) != oid or hashlib.sha256(data).hexdigest() != sha256:
            return None
        return sha256

    def put_blob(self, oid: str, data: bytes) -> str:
        """Stores a small file; its SHA-256."""
        sha256 = hashlib.sha256(data).hexdigest()
        _write(self.folder / sha256, data)
        _write(self.folder / "oid" / oid, sha256.encode())
        return sha256

    def missing_bytes(self, sha256: str, size: int) -> int:
        """What is still to be downloaded of a file, as far as lengths tell."""
        try:
            return 0 if (self.folder / sha256).stat().st_size == size else size
        except OSError:
            pass
        try:
            return max(0, size - (self.folder / f"{sha256}.part").stat().st_blocks * 512)
        except OSError:
            return size

    def part(self, sha256: str, size: int) -> Part | None:
        """The unfinished file, ours alone until it is closed; None while somebody else has it.

        Raises HubUnavailable when the disk has no room for the rest of it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        part = _locked(self.folder / f"{sha256}.part", size)
        if part is None:
            return None
        try:
            require_room(self.folder, size - part.found_all)
        except BaseException:
            part.close()
            raise
        return part

    def keep(self, part: Part, sha256: str) -> None:
        """The finished part, whose hash is right, becomes the file."""
        part.rename_to(self.folder / sha256)
        self._verified[sha256] = _state(self.folder / sha256)


def git_blob_id(data: bytes) -> str:
    """The name that git gives a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def free_bytes(folder: Path) -> int:
    """What may still be downloaded to the disk of the folder; some stays free."""
    folder.mkdir(parents=True, exist_ok=True)
    return shutil.disk_usage(folder).free - _DISK_MARGIN_BYTES


def require_room(folder: Path, n_bytes: int) -> None:
    """Raises HubUnavailable when the disk of the folder does not have it, and some more."""
    free = shutil.disk_usage(folder).free
    if free < n_bytes + _DISK_MARGIN_BYTES:
        raise HubUnavailable(
            f"The bot's disk has {free >> 20} MiB free, but {n_bytes >> 20} MiB are to be downloaded to it. "
            f"Free space in {folder}."
        )


def _locked(path: Path, size: int) -> Part | None:
    """None while somebody else has it, or when it was renamed or removed meanwhile."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(path.stat(), os.fstat(file)):
            return Part(path, file, size)
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(file)
        raise
    os.close(file)
    return None


def unreadable(path: Path, exc: OSError) -> HubUnavailable:
    """A file of the cache that the disk does not give."""
    return HubUnavailable(f"The bot cannot read {path} ({exc.strerror or type(exc).__name__}).")


def _state(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def _sha256_of(path: Path) -> str:
    hasher, buffer = hashlib.sha256(), memoryview(bytearray(_HASH_PIECE_BYTES))
    with path.open("rb", buffering=0) as file:
        while n_bytes := file.readinto(buffer):
            hasher.update(buffer[:n_bytes])
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
