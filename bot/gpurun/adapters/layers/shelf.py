"""Which layers there are, and who uses them: small files beside the other caches, like the volumes of one machine.

    <folder>/id                what volumes of these records carry as their label
    <folder>/kept/<name>       one layer; its mtime is when it was last used
    <folder>/spoilt/<name>     the volume of another scope's layer that could not be used for what is named so here
    <folder>/uses/<attempt>    the volume of an attempt, and until when at the latest

They are no rows of the database: the volumes belong to the engine of this machine, which several databases may use
(each `gpurun run` has its own), and one database may be used by machines with engines of their own. A volume is written
by one container only, whose use names it; it is taken by others once that use is gone. All functions block.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpurun.domain.layer import Layer, LayerUse, LayerWish

OVERDUE = timedelta(hours=1)
"""How long after its deadline an attempt of which nobody says that it is over is still taken to run."""
_USER = re.compile(r"[0-9a-z]{26}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLayer:
    """A record."""

    repo: str
    scope: str
    key: str
    volume: str
    maker: str
    sha256: str
    size: int
    setup_ms: int
    made_at: float
    used_at: float = 0.0

    @property
    def name(self) -> str:
        """Of its file."""
        return _name(self.repo, self.scope, self.key)

    @property
    def layer(self) -> Layer:
        """For the agent."""
        day = datetime.fromtimestamp(self.made_at, UTC).strftime("%Y-%m-%d")
        return Layer(sha256=self.sha256, size=self.size, setup_ms=self.setup_ms, day=day)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    user: str
    until: float
    volume: str
    wish: LayerWish
    layer: Layer | None


@dataclass(slots=True, kw_only=True)
class ClearedLayers:
    """What went, and what could not."""

    layers: int = 0
    freed_bytes: int = 0
    left_bytes: int = 0
    in_use_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LayerShelf:
    """The records in one folder, whichever process asks. `max_bytes` 0: no limit."""

    folder: Path
    max_bytes: int = 0

    # one attempt

    def use(self, wish: LayerWish, *, user: str, until: datetime, now: datetime) -> LayerUse | None:
        """As the port says."""
        if not _USER.fullmatch(user):
            raise ValueError(f"{user!r} is no attempt id")
        with self._lock():
            known = self._use_of(user)
            if known is not None:
                return self._told(known)
            uses = self._uses(now)
            found = [kept for scope in wish.read if (kept := self._kept(_name(wish.repo, scope, wish.key)))]
            found = [kept for kept in found if kept.volume != self._spoilt(wish)]
            ready = [kept for kept in found if kept.maker not in {use.user for use in uses}]
            if found and not ready:
                return None
            if ready:
                os.utime(self._path(ready[0].name), (now.timestamp(), now.timestamp()))
            volume = ready[0].volume if ready else f"gpurun-layer-{self._id()}-{user}"
            layer = ready[0].layer if ready else None
            use = _Use(user=user, until=until.timestamp(), volume=volume, wish=wish, layer=layer)
            _write(self.folder / "uses" / user, asdict(use))
            return self._told(use)

    def of(self, user: str) -> LayerUse | None:
        """What it was given."""
        use = self._use_of(user)
        return self._told(use) if use else None

    def made(self, user: str, *, sha256: str, size: int, setup_ms: int, now: datetime) -> str:
        """As the port says."""
        if not _SHA256.fullmatch(sha256) or size < 0 or setup_ms < 0:
            return "what was told of it is odd"
        with self._lock():
            use = self._use_of(user)
            if use is None or use.layer is not None:
                return "this run makes none"
            if self.max_bytes and size > self.max_bytes:
                return "it is too large"
            there = self._kept(_name(use.wish.repo, use.wish.write, use.wish.key))
            if there is not None:
                said_before = there.maker == user and (there.sha256, there.size) == (sha256, size)
                return "" if said_before else "there is one already"
            kept = KeptLayer(
                repo=use.wish.repo,
                scope=use.wish.write,
                key=use.wish.key,
                volume=use.volume,
                maker=user,
                sha256=sha256,
                size=size,
                setup_ms=setup_ms,
                made_at=now.timestamp(),
            )
            self._put(kept, now)
        return ""

    def spoilt(self, user: str) -> None:
        """As the port says."""
        with self._lock():
            use = self._use_of(user)
            if use is None or use.layer is None:
                return
            own = _name(use.wish.repo, use.wish.write, use.wish.key)
            kept = self._kept(own)
            if kept is not None and kept.volume == use.volume:
                self._path(own).unlink(missing_ok=True)
            else:
                _replace(self.folder / "spoilt" / own, use.volume)

    def has(self, user: str) -> bool:
        """It has a use on record. Cheap."""
        return bool(_USER.fullmatch(user)) and (self.folder / "uses" / user).exists()

    def let_go(self, user: str, now: datetime) -> tuple[str, ...]:
        """As the port says."""
        if not self.has(user):
            return ()
        with self._lock():
            use = self._use_of(user)
            (self.folder / "uses" / user).unlink(missing_ok=True)
            volumes = {use.volume} if use else set()
            volumes |= {kept.volume for kept in self._evict(self.max_bytes or None, None, now, ClearedLayers())}
            return tuple(sorted(volumes - self._needed(now)))

    # all

    def id(self) -> str:
        """What volumes are labelled with."""
        with self._lock():
            return self._id()

    def users(self) -> frozenset[str]:
        """Whoever has a use on record."""
        return frozenset(path.name for path in _entries(self.folder / "uses") if _USER.fullmatch(path.name))

    def tidy(self, over: Collection[str], volumes: Collection[str], now: datetime) -> tuple[str, ...]:
        """As the port says."""
        with self._lock():
            for user in self.users() & set(over) | self.users() - {use.user for use in self._uses(now)}:
                (self.folder / "uses" / user).unlink(missing_ok=True)
            self._evict(self.max_bytes or None, None, now, ClearedLayers())
            needed = self._needed(now)
            for path in _entries(self.folder / "spoilt"):
                if path.name.startswith(".") or _text(path) not in needed:
                    path.unlink(missing_ok=True)
            return tuple(sorted(set(volumes) - needed))

    def all(self, now: datetime) -> tuple[tuple[KeptLayer, tuple[str, ...]], ...]:
        """Each with the attempts that use it, the last used first."""
        uses = self._uses(now)
        found = sorted(self._all(), key=lambda kept: kept.used_at, reverse=True)
        return tuple((one, tuple(use.user for use in uses if use.volume == one.volume)) for one in found)

    def clear(self, max_bytes: int | None, used_since: datetime | None, now: datetime) -> ClearedLayers:
        """Forgets what exceeds and nobody uses; `tidy` then says which volumes go. None: no limit."""
        done = ClearedLayers()
        if self.folder.is_dir():
            with self._lock():
                self._evict(max_bytes, used_since, now, done)
                done.left_bytes = sum(kept.size for kept in self._all())
        return done

    def _evict(
        self, max_bytes: int | None, used_since: datetime | None, now: datetime, done: ClearedLayers
    ) -> list[KeptLayer]:
        used = {use.volume for use in self._uses(now)}
        kept = sorted(self._all(), key=lambda one: one.used_at)
        total, gone = sum(one.size for one in kept), []
        for one in kept:
            too_old = used_since is not None and one.used_at < used_since.timestamp()
            too_much = max_bytes is not None and (total > max_bytes or max_bytes == 0)
            if not (too_old or too_much):
                continue
            if one.volume in used:
                done.in_use_bytes += one.size
                continue
            self._path(one.name).unlink(missing_ok=True)
            gone.append(one)
            total -= one.size
            done.layers += 1
            done.freed_bytes += one.size
        return gone

    def _needed(self, now: datetime) -> set[str]:
        return {kept.volume for kept in self._all()} | {use.volume for use in self._uses(now)}

    # files

    def _told(self, use: _Use) -> LayerUse:
        most = self.max_bytes or 1 << 50
        return LayerUse(volume=use.volume, shelf=self._id(), layer=use.layer, most_bytes=0 if use.layer else most)

    def _id(self) -> str:
        path = self.folder / "id"
        with suppress(FileNotFoundError):
            return path.read_text("ascii")
        _replace(path, secrets.token_hex(6))
        return path.read_text("ascii")

    def _path(self, name: str) -> Path:
        return self.folder / "kept" / name

    def _put(self, kept: KeptLayer, now: datetime) -> None:
        values = asdict(kept)
        del values["used_at"]
        _write(self._path(kept.name), values)
        os.utime(self._path(kept.name), (now.timestamp(), now.timestamp()))

    def _kept(self, name: str) -> KeptLayer | None:
        path = self._path(name)
        with suppress(OSError, ValueError, TypeError):
            return KeptLayer(**json.loads(path.read_text("utf-8")), used_at=path.stat().st_mtime)
        return None

    def _spoilt(self, wish: LayerWish) -> str:
        """A volume; empty when there is none."""
        return _text(self.folder / "spoilt" / _name(wish.repo, wish.write, wish.key))

    def _all(self) -> list[KeptLayer]:
        names = [path.name for path in _entries(self.folder / "kept") if not path.name.startswith(".")]
        return [kept for name in names if (kept := self._kept(name)) is not None]

    def _uses(self, now: datetime) -> list[_Use]:
        """Of those that may run yet."""
        found = [use for user in self.users() if (use := self._use_of(user)) is not None]
        return [use for use in found if now.timestamp() < use.until + OVERDUE.total_seconds()]

    def _use_of(self, user: str) -> _Use | None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads((self.folder / "uses" / user).read_text("utf-8"))
            layer = Layer(**said["layer"]) if said["layer"] else None
            wish = LayerWish(**said["wish"])
            return _Use(user=user, until=float(said["until"]), volume=str(said["volume"]), wish=wish, layer=layer)
        return None

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One at a time. The kernel frees it when a process ends."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)


def _name(repo: str, scope: str, key: str) -> str:
    return hashlib.sha256(f"{repo}\0{scope}\0{key}".encode()).hexdigest()[:32]


def _text(path: Path) -> str:
    with suppress(OSError, ValueError):
        return path.read_text("utf-8")
    return ""


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _write(path: Path, values: dict[str, object]) -> None:
    _replace(path, json.dumps(values))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".new-{path.name}-{secrets.token_hex(4)}")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
