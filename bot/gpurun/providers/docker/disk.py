"""What containers have written, asked of the engine in a thread of its own: the answer may take seconds.

`--storage-opt size` needs xfs with project quotas and is refused on ext4 (Engine 20.10), so nothing stops a job at the
byte: it is measured, and ended when it has used too much. The engine walks the container's own layer for each answer.
On 2 cores: 2 ms for one file of 5 GB, 0.9 s for 100,000 files. It adds up the lengths of files: a sparse file counts as
if it were full, and one that is deleted and still open not at all. What is free on the disk tells of those.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpurun.domain.offer import DiskUse
from gpurun.domain.plan import Resources
from gpurun.providers.docker.container import LABEL_DISK
from gpurun.providers.docker.engine import Engine, vendor_errors

if TYPE_CHECKING:
    from docker.api.client import APIClient

HOST_KEEPS = 0.1
"""Part of the free space that stays with the host when a job does not say how much it needs."""
PAUSE_S = 2.0
SHARE = 20
"""The pause after a measure is at least so many times what it took: 5 % of one core of the host at most."""
WAIT_S = 0.1
"""What a list waits for measures that are quick, so that they are not a list late."""
LEAVING_S = 60.0
"""How long the files of a container that ended may take to go. Nobody else is named for a full disk meanwhile."""
MIB = 1024 * 1024


def space(folder: str) -> Space | None:
    """Of the file system that holds `folder`; None when it cannot be seen from here."""
    try:
        found = os.statvfs(folder) if folder else None
    except OSError:
        return None
    if found is None:
        return None
    return Space(found.f_blocks * found.f_frsize // MIB, found.f_bavail * found.f_frsize // MIB)


@dataclass(frozen=True, slots=True)
class Space:
    """Of one file system, MiB."""

    total_mib: int
    free_mib: int


def limit_for(needs: Resources, disk: Space | None, *, default_mib: int, max_runs: int) -> int:
    """What was asked for, else the operator's default, else an equal share of 90 % of what is free. 0: no limit."""
    share_mib = int(disk.free_mib * (1 - HOST_KEEPS) / max_runs) if disk is not None else 0
    return needs.disk_mib or default_mib or share_mib


@dataclass(slots=True)
class _Layer:
    """One container that is measured."""

    limit_mib: int
    volumes: tuple[str, ...] | None
    """Their folders; None: the list says that there are some and not where."""
    due_at: float = 0.0
    used_mib: int | None = None


@dataclass(slots=True)
class _Layers:
    """By ref; read and written under the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    known: dict[str, _Layer] = field(default_factory=dict)
    left_at: dict[str, float] = field(default_factory=dict)
    """Of those that do not run any more and are not removed yet."""
    busy: bool = False


class DiskWatch:
    """The last measures of one engine's containers. A list brings them on and never waits long for them."""

    def __init__(self, engine: Engine, monotonic: Callable[[], float], *, keep_free_mib: int) -> None:
        self._engine = engine
        self._monotonic = monotonic
        self._keep_free_mib = keep_free_mib
        self._layers = _Layers()
        self._idle = threading.Event()
        self._idle.set()

    def look(self, items: Sequence[Mapping[str, Any]], folder: str) -> Mapping[str, DiskUse]:
        """What is known of the running ones among `items` of the engine's list. Blocks at most `WAIT_S`.

        `folder`: where the engine keeps layers.
        """
        running = {item["Id"]: item for item in items if item["State"] == "running"}
        self._follow(running, {item["Id"] for item in items})
        self._idle.wait(WAIT_S)
        return self._uses(space(folder))

    def close(self) -> None:
        """No more questions: the thread must not connect to the engine again."""
        with self._layers.lock:
            self._layers.known.clear()

    def _follow(self, running: Mapping[str, Mapping[str, Any]], there: Collection[str]) -> None:
        """Forgets those that ended, learns new ones, and starts the thread when one is due."""
        layers = self._layers
        with layers.lock:
            now = self._monotonic()
            layers.left_at = {ref: at for ref, at in layers.left_at.items() if ref in there and now - at < LEAVING_S}
            for ref in layers.known.keys() - running.keys():
                del layers.known[ref]
                if ref in there:
                    layers.left_at[ref] = now
            for ref, item in running.items():
                if ref not in layers.known:
                    layers.known[ref] = _layer(item)
            if layers.busy or not any(layer.due_at <= now for layer in layers.known.values()):
                return
            layers.busy = True
            self._idle.clear()
        threading.Thread(target=self._measure_all, name="gpurun-docker-disk", daemon=True).start()

    def _uses(self, disk: Space | None) -> Mapping[str, DiskUse]:
        with self._layers.lock:
            measured = {
                ref: DiskUse(used_mib=layer.used_mib, limit_mib=layer.limit_mib)
                for ref, layer in self._layers.known.items()
                if layer.used_mib is not None
            }
            room_is_coming = bool(self._layers.left_at)
        if disk is None or disk.free_mib >= self._keep_free_mib or room_is_coming or not measured:
            return measured
        most = max(measured, key=lambda ref: measured[ref].used_mib)  # one at a time: its end may be enough
        use = measured[most]
        full = DiskUse(used_mib=use.used_mib, limit_mib=use.limit_mib, host_free_mib=disk.free_mib)
        return {**measured, most: full}

    def _measure_all(self) -> None:
        try:
            while (due := self._next_due()) is not None:
                self._measure(*due)
        finally:
            with self._layers.lock:
                self._layers.busy = False
            self._idle.set()

    def _next_due(self) -> tuple[str, _Layer] | None:
        now = self._monotonic()
        with self._layers.lock:
            return next(((ref, layer) for ref, layer in self._layers.known.items() if layer.due_at <= now), None)

    def _measure(self, ref: str, layer: _Layer) -> None:
        began = self._monotonic()
        used: int | None = None
        try:
            api = self._engine.client()
            if layer.volumes is None:
                layer.volumes = volume_folders(api, ref)
            used = layer_bytes(api, ref)
        except vendor_errors():
            pass  # it ended meanwhile, or the engine has a bad moment: the last measure stands
        if used is not None:
            used += sum(map(tree_bytes, layer.volumes or ()))
        now = self._monotonic()
        with self._layers.lock:
            layer.used_mib = layer.used_mib if used is None else used // MIB
            layer.due_at = now + max(PAUSE_S, SHARE * (now - began))


def layer_bytes(api: APIClient, ref: str) -> int | None:
    """Length of the files in the container's own layer; None when it is not there. Vendor errors pass."""
    found = api.containers(size=True, filters={"id": ref})
    return int(found[0].get("SizeRw") or 0) if found else None


def volume_folders(api: APIClient, ref: str) -> tuple[str, ...]:
    """Where those of the container's volumes are on the host to which it may write. Vendor errors pass."""
    mounts = api.inspect_container(ref).get("Mounts") or ()
    own = (mount for mount in mounts if mount.get("Type") == "volume" and mount.get("RW", True))
    return tuple(mount["Source"] for mount in own if mount.get("Source"))


def tree_bytes(folder: str) -> int:
    """Length of the files in a folder, as far as this process may look."""
    total, folders = 0, [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return total


def _layer(item: Mapping[str, Any]) -> _Layer:
    has_volumes = any(mount.get("Type") == "volume" for mount in item.get("Mounts") or ())
    limit = (item.get("Labels") or {}).get(LABEL_DISK, "")
    return _Layer(int(limit) if limit.isdigit() else 0, None if has_volumes else ())
