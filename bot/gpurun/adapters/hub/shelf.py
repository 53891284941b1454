"""The cache as a whole: who uses what, what is laid out, and what goes when it has grown too large.

    <cache>/<owner--name>/<sha256>     content, once for all revisions and jobs; its atime is when it was last used
    <cache>/views/<key>/               one set of pins, laid out (`view`)
    <cache>/uses/<attempt>             what an attempt uses, and until when at the latest

A use is written before its view is looked at, and goes only when the attempt is over for good. So who removes files
needs no database, and no process has to live: under the lock below it reads the uses and leaves alone what they name.
All functions block.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpurun.adapters.hub import view as views
from gpurun.domain.plan import ModelFile, ModelPin, hub_path

OVERDUE = timedelta(hours=1)
"""How long after its deadline an attempt of which nobody says that it is over is still taken to run."""
ABANDONED = timedelta(days=3)
"""An unfinished download that nobody has continued for so long goes."""
UNUSED_VIEW = timedelta(days=7)
"""Laying it out again costs milliseconds."""
_DRAFT = timedelta(days=1)

_CONTENT = re.compile(r"[0-9a-f]{64}")
_USER = re.compile(r"[0-9a-z]{26}")
_OURS = frozenset({"views", "uses"})


@dataclass(frozen=True, slots=True)
class Use:
    """What one attempt uses."""

    user: str
    until: datetime
    """It is over by then, whatever happens."""
    view: str
    files: frozenset[str]
    """`<owner--name>/<sha256>`."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One file of content."""

    path: Path
    size: int
    used_at: datetime

    @property
    def name(self) -> str:
        """As in `Use.files`."""
        return f"{self.path.parent.name}/{self.path.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may stay."""

    max_bytes: int | None = None
    """None: no limit. The least recently used goes first."""
    used_since: datetime | None = None
    """What was not used since then goes. None: age is no reason."""


@dataclass(slots=True, kw_only=True)
class Cleared:
    """What went, and what could not."""

    files: int = 0
    freed_bytes: int = 0
    left_bytes: int = 0
    in_use_bytes: int = 0
    """Would have gone, but somebody uses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoUse:
    """What the cache holds of one repository of the hub."""

    repo: str
    """`org/name`, `datasets/org/name`."""
    files: int
    size: int
    unfinished: int
    """Bytes of downloads that have not ended."""
    used_at: datetime
    users: tuple[str, ...]
    """Attempts that use some of it now."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """The cache in one folder, whichever process asks."""

    folder: Path
    _marked: set[tuple[str, str]] = field(default_factory=set)
    """Uses that this process has written."""

    # using

    def use(self, pins: Sequence[ModelPin], *, user: str, until: datetime) -> str:
        """From now on nothing of the pins is removed while `user` may run; the key of their view."""
        if not _USER.fullmatch(user):
            raise ValueError(f"{user!r} is no attempt id")
        key = views.key_of(pins)
        if (user, key) not in self._marked:
            files = sorted({f"{_folder_of(pin)}/{file.sha256}" for pin in pins for file in pin.files})
            text = json.dumps({"until": until.timestamp(), "view": key, "files": files})
            with self._lock(fcntl.LOCK_SH):
                _write(self.folder / "uses" / user, text)
            self._marked.add((user, key))
        return key

    def lay_out(self, key: str, pins: Sequence[ModelPin], now: datetime) -> Path | None:
        """The view, whole; None when content is missing. Needs `use` before, and content that was verified."""
        view = self.folder / "views" / key
        for how in (fcntl.LOCK_SH, fcntl.LOCK_EX):
            with self._lock(how), suppress(FileNotFoundError):
                if not views.is_whole(view, pins, self._content):
                    if how == fcntl.LOCK_SH:
                        continue  # one at a time lays out
                    views.build(view, pins, self._content)
                for path in {self._content(pin, file) for pin in pins for file in pin.files}:
                    touch(path, now)
                touch(view, now)
                return view
        return None

    def let_go(self, user: str) -> None:
        """It is over. Silent when it used nothing."""
        if _USER.fullmatch(user):
            (self.folder / "uses" / user).unlink(missing_ok=True)
            self._marked.difference_update({one for one in self._marked if one[0] == user})

    def users(self) -> frozenset[str]:
        """Whoever has a use on record."""
        return frozenset(path.name for path in _entries(self.folder / "uses") if _USER.fullmatch(path.name))

    def _content(self, pin: ModelPin, file: ModelFile) -> Path:
        return self.folder / _folder_of(pin) / file.sha256

    # looking and clearing

    def list(self, now: datetime) -> tuple[RepoUse, ...]:
        """By repository, the last used first. Changes nothing."""
        uses = self._uses(now)
        found = []
        for folder in self._repos():
            kept = tuple(_contents(folder))
            unfinished = sum(part.stat().st_blocks * 512 for part in folder.glob("*.part"))
            if kept or unfinished:
                names = {one.name for one in kept}
                found.append(
                    RepoUse(
                        repo=folder.name.replace("--", "/"),
                        files=len(kept),
                        size=sum(one.size for one in kept),
                        unfinished=unfinished,
                        used_at=max((one.used_at for one in kept), default=_mtime(folder)),
                        users=tuple(sorted(use.user for use in uses if use.files & names)),
                    )
                )
        return tuple(sorted(found, key=lambda one: one.used_at, reverse=True))

    def clear(self, limits: Limits, now: datetime) -> Cleared:
        """Removes what exceeds the limits and nobody uses, and what was left behind. Safe beside everything else."""
        if not self.folder.is_dir():
            return Cleared()
        with self._lock(fcntl.LOCK_EX):
            uses = self._uses(now)
            used = frozenset().union(*(use.files for use in uses))
            kept = [one for folder in self._repos() for one in _contents(folder)]
            done = Cleared(left_bytes=sum(one.size for one in kept))
            victims = list(_too_much(kept, limits, used, done))
            for user in self.users() - {use.user for use in uses}:
                self.let_go(user)
            self._remove_views({use.view for use in uses}, victims, now)
            for one in victims:
                one.path.unlink(missing_ok=True)
                done.files += 1
                done.freed_bytes += one.size
                done.left_bytes -= one.size
            for folder in self._repos():
                done.freed_bytes += _remove_leftovers(folder, now, everything=limits.max_bytes == 0)
        return done

    def _repos(self) -> Iterator[Path]:
        return (path for path in _entries(self.folder) if path.is_dir() and path.name not in _OURS)

    def _uses(self, now: datetime) -> tuple[Use, ...]:
        """Of those that may run yet. What cannot be read any more is nobody's."""
        found = []
        for path in _entries(self.folder / "uses"):
            if not _USER.fullmatch(path.name):
                continue
            with suppress(OSError, ValueError, KeyError, TypeError):
                said = json.loads(path.read_text("utf-8"))
                until = datetime.fromtimestamp(said["until"], UTC)
                if now < until + OVERDUE:
                    found.append(Use(path.name, until, said["view"], frozenset(said["files"])))
        return tuple(found)

    def _remove_views(self, used: Collection[str], victims: Iterable[Kept], now: datetime) -> None:
        """Those that nobody uses and that are old, or would keep content on the disk that is to go."""
        inodes = set()
        for victim in victims:
            with suppress(FileNotFoundError):
                inodes.add(victim.path.stat().st_ino)
        for view in _entries(self.folder / "views"):
            if view.name.startswith(".new-"):
                if now - _mtime(view) > _DRAFT:
                    views.remove(view)
            elif view.name.partition(".")[0] not in used:
                old = now - _mtime(view) > UNUSED_VIEW or ".old-" in view.name
                if old or any(blob.st_ino in inodes for blob in views.blobs(view)):
                    views.remove(view)

    @contextmanager
    def _lock(self, how: int) -> Iterator[None]:
        """Shared by who uses, alone for who removes. The kernel frees it when a process ends."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, how)
            yield
        finally:
            os.close(file)


def touch(path: Path, now: datetime) -> None:
    """It is used now. The time of its last change stays: that is part of what says that it was verified."""
    found = path.stat()
    if path.is_dir():
        os.utime(path, ns=(_ns(now), _ns(now)))
    else:
        os.utime(path, ns=(_ns(now), found.st_mtime_ns))


def _folder_of(pin: ModelPin) -> str:
    return hub_path(pin.kind, pin.id).replace("/", "--")


def _too_much(kept: Sequence[Kept], limits: Limits, used: Collection[str], done: Cleared) -> Iterator[Kept]:
    """The least recently used first. Notes what is in use."""
    total = sum(one.size for one in kept)
    for one in sorted(kept, key=lambda one: one.used_at):
        too_old = limits.used_since is not None and one.used_at < limits.used_since
        too_large = limits.max_bytes is not None and (total > limits.max_bytes or limits.max_bytes == 0)
        if not (too_old or too_large):
            continue
        if one.name in used:
            done.in_use_bytes += one.size
        else:
            total -= one.size
            yield one


def _contents(folder: Path) -> Iterator[Kept]:
    for path in _entries(folder):
        if _CONTENT.fullmatch(path.name):
            with suppress(FileNotFoundError):
                found = path.stat()
                yield Kept(path, found.st_size, datetime.fromtimestamp(found.st_atime, UTC))


def _remove_leftovers(folder: Path, now: datetime, *, everything: bool) -> int:
    """Of downloads that nobody continues, of processes that died, and names of small files that are gone; bytes."""
    freed = 0
    for path in _entries(folder):
        age = now - _mtime(path)
        if path.name.endswith(".part"):
            if everything or age > ABANDONED:
                freed += _remove_part(path)
        elif path.name.startswith(".new-") or ".part." in path.name:
            part = path.with_name(path.name.partition(".part")[0] + ".part")
            if age > _DRAFT and not part.exists():
                path.unlink(missing_ok=True)
    for name in _entries(folder / "oid"):
        with suppress(OSError, ValueError):
            if not (folder / name.read_text("ascii")).exists():
                name.unlink(missing_ok=True)
    return freed


def _remove_part(path: Path) -> int:
    """Unless somebody writes it."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        freed = os.fstat(file).st_blocks * 512
        path.with_name(path.name + ".ranges").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return 0
    else:
        return freed
    finally:
        os.close(file)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _mtime(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return datetime.now(UTC)


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".new-{path.name}-{secrets.token_hex(4)}")
    draft.write_text(text, "utf-8")
    draft.rename(path)
