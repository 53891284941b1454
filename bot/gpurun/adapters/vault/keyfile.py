"""The file of the keys that secrets are sealed with: one a line, id and key, the current one first.

The id is the beginning of the key's hash, so a damaged line is seen. The file is replaced, never written into: a crash
leaves the old one or the new one.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gpurun.domain.errors import UserError

KEY_BYTES = 32
MAX_FILE_BYTES = 1024 * 1024

_HEAD = (
    "# gpurun: the keys of the secrets in its database, the current one first. Whoever has both can read the secrets:\n"
    "# keep a copy, and keep it apart from copies of the database.\n"
)


@dataclass(frozen=True, slots=True)
class Key:
    """Of AES-256."""

    id: str
    """8 hex digits."""
    secret: bytes = field(repr=False)


class KeyFile:
    """Read whenever it is asked and has changed; several processes may have it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[tuple[int, int, int] | None, tuple[Key, ...]] = (None, ())
        """What the file looked like, and its keys: in one, because several threads read it."""

    def keys(self) -> tuple[Key, ...]:
        """The current one first; none when there is no file.

        Raises: UserError when it cannot be read or a line is damaged.
        """
        try:
            found = self.path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            read_at, keys = self._read
            if seen != read_at:
                keys = _parsed(self.path, self.path.read_bytes()[:MAX_FILE_BYTES])
                self._read = seen, keys
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise UserError(f"The key file {self.path} cannot be read: {error.strerror}.") from error
        return keys

    def key(self, id: str) -> Key | None:
        """None when the file does not have it. Raises UserError."""
        return next((key for key in self.keys() if key.id == id), None)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Nobody else writes the file, or seals something new, until it is left. Blocks. Raises UserError."""
        try:
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(
                f"There is no folder {self.path.parent} for the key file: {error.strerror}.",
                hint="Make it, or set GPURUN_SECRETS_KEY_FILE.",
            ) from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def current(self) -> Key:
        """A new one when the file has none. Within `changing`. Raises UserError."""
        keys = self.keys()
        return keys[0] if keys else self.add()

    def add(self) -> Key:
        """A new key, which is the current one from now on; durable when it returns. Within `changing`."""
        secret = secrets.token_bytes(KEY_BYTES)
        key = Key(_id_of(secret), secret)
        self._write((key, *self.keys()))
        return key

    def keep_only(self, ids: frozenset[str]) -> int:
        """The current key and those; how many are gone. Within `changing`."""
        keys = self.keys()
        kept = tuple(key for number, key in enumerate(keys) if number == 0 or key.id in ids)
        if len(kept) < len(keys):
            self._write(kept)
        return len(keys) - len(kept)

    def _write(self, keys: Sequence[Key]) -> None:
        text = _HEAD + "".join(f"{key.id} {base64.b64encode(key.secret).decode()}\n" for key in keys)
        fresh = self.path.with_name(f".{self.path.name}.new")
        try:
            folder = self.path.parent.stat()
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                if os.geteuid() == 0:  # the server may be another user, and the folder is the server's
                    os.fchown(file.fileno(), folder.st_uid, folder.st_gid)
                file.write(text.encode("ascii"))
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(self.path)
            _sync(self.path.parent)
        except OSError as error:
            raise UserError(f"The key file {self.path} cannot be written: {error.strerror}.") from error
        self._read = None, ()


def _sync(folder: Path) -> None:
    """A new name is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _id_of(secret: bytes) -> str:
    return hashlib.sha256(b"gpurun key id\0" + secret).hexdigest()[:8]


def _parsed(path: Path, data: bytes) -> tuple[Key, ...]:
    keys = []
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip() or line.startswith(b"#"):
            continue
        try:
            key_id, text = line.split()
            secret = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            key_id, secret = b"", b""
        if len(secret) != KEY_BYTES or key_id.decode("ascii", "replace") != _id_of(secret):
            raise UserError(
                f"The key file {path} is damaged in line {number}.", hint="Put the file back from your copy of it."
            )
        keys.append(Key(_id_of(secret), secret))
    return tuple(keys)
