"""The folder that files are downloaded into. Nothing is written outside it, and nothing is there that is not whole.

A file grows under its sha256 in `.gpurun-part`, where the next download finds what there is of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpurun.domain.errors import PinNotFound, UserError
from gpurun.domain.manifest import Entry

PARTS = ".gpurun-part"


class Folder:
    """Made when something is written."""

    def __init__(self, top: Path) -> None:
        self.top = top

    def state_of(self, entry: Entry) -> bool | None:
        """True when this very file is there, False when another one is, None when there is none.

        Raises UserError when something is in the way: a link, a folder where the file should be, what may not be read.
        """
        try:
            place = self.place(entry)
            status = place.lstat()
            return status.st_size == entry.size and _sha256_of(place) == entry.sha256
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{error.filename or self.top} cannot be read: {error.strerror}.") from error

    def place(self, entry: Entry) -> Path:
        """Where it belongs. Raises UserError when links or files are in the way, OSError."""
        *folders, name = entry.path.split("/")
        here = self.top
        if folders[:1] == [PARTS] or name == PARTS:
            raise UserError(f"{entry.path} cannot be written: {PARTS} is for files that are not whole yet.")
        for folder in folders:
            here = here / folder
            if here.is_symlink() or (here.exists() and not here.is_dir()):
                raise UserError(f"{here} is in the way: no folder, or a link that may lead elsewhere.")
        place = here / name
        if place.is_symlink() or (place.exists() and not place.is_file()):
            raise UserError(f"{place} is in the way: no file, or a link.")
        return place

    @contextmanager
    def draft(self, entry: Entry) -> Iterator[Draft]:
        """What there is of the file. Raises UserError."""
        parts = self.top / PARTS
        if parts.is_symlink():
            raise UserError(f"{parts} is in the way: a link that may lead elsewhere.", hint="Move it away.")
        try:
            parts.mkdir(parents=True, exist_ok=True)
            file = os.open(parts / entry.sha256, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise self._trouble(error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Draft(self, entry, file, parts / entry.sha256)
        except BlockingIOError as error:
            raise UserError(f"Another download is writing into {self.top}.", hint="Wait for it.") from error
        except OSError as error:
            raise self._trouble(error) from error
        finally:
            if not os.fstat(file).st_size:
                with contextlib.suppress(OSError):
                    (parts / entry.sha256).unlink()
            os.close(file)

    def close(self) -> None:
        """Leaves no empty folder of ours behind."""
        with contextlib.suppress(OSError):
            (self.top / PARTS).rmdir()

    def _trouble(self, error: OSError) -> UserError:
        return UserError(f"{error.filename or self.top} cannot be written: {error.strerror}.")


class Draft:
    """A file that grows."""

    def __init__(self, folder: Folder, entry: Entry, file: int, path: Path) -> None:
        self._folder = folder
        self._entry = entry
        self._file = file
        self._path = path
        self.size = os.fstat(file).st_size
        if self.size > entry.size:
            self.go_to(0)

    def go_to(self, offset: int) -> None:
        """The next bytes stand there; what stands behind is forgotten."""
        os.ftruncate(self._file, offset)
        self.size = offset

    def write(self, data: bytes) -> None:
        """Raises PinNotFound when it is more than the file has."""
        if self.size + len(data) > self._entry.size:
            self.drop()
            raise PinNotFound("the server sent more than the file has")
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._file, rest, self.size)
            self.size += written
            rest = rest[written:]

    def is_whole(self) -> bool:
        """It is the file."""
        return self.size == self._entry.size and _sha256_of(self._path) == self._entry.sha256

    def drop(self) -> None:
        """From the start again."""
        self.go_to(0)

    def put(self, *, replace_other: bool) -> None:
        """In its place, at once and whole. Raises UserError when something came there meanwhile."""
        place = self._folder.place(self._entry)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not replace_other and self._folder.state_of(self._entry) is False:
            raise UserError(f"{place} would be replaced by other bytes.", hint="--force replaces.")
        self._path.replace(self._folder.place(self._entry))


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
