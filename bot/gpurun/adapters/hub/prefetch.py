"""Files into the cache ahead of their use: large ones in ranges, each downloaded by one of those that want it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from gpurun.adapters.hub.cache import RepoCache, require_room
from gpurun.adapters.hub.download import Downloads, not_kept, on_disk, take_part, wrong_bytes
from gpurun.adapters.hub.part import RANGE_BYTES, Part
from gpurun.adapters.hub.ranges import CONNECTIONS, NoRanges, NotWritten, Ranges
from gpurun.adapters.hub.refusals import Asked
from gpurun.adapters.hub.wire import HubWire
from gpurun.domain.errors import GpurunError, HubUnavailable
from gpurun.domain.plan import ModelFile
from gpurun.ports.bytes import Preparation
from gpurun.ports.clock import Clock

if TYPE_CHECKING:
    import httpx2

_FILES = 4
"""At a time."""
_TRIES = 2
"""Of a file whose bytes are wrong."""
_LOOK_AGAIN_S = 0.2
"""For the end of somebody else's download."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One file, where it is asked for and where it is to lie."""

    cache: RepoCache
    asked: Asked
    file: ModelFile


class Prefetches:
    """Of all calls of this process; they share the connections."""

    def __init__(self, wire: HubWire, downloads: Downloads, clock: Clock, *, idle_timeout_s: float) -> None:
        self._wire = wire
        self._downloads = downloads
        self._clock = clock
        self._idle_timeout_s = idle_timeout_s
        self._connections: anyio.CapacityLimiter | None = None
        self._wrong: Counter[str] = Counter()
        """How often the bytes of a hash came wrong."""

    async def bring(self, wanted: Sequence[Wanted], wait_s: float) -> Preparation:
        """As far as it goes in that time."""
        missing = _distinct(wanted)
        bytes_total = sum(one.file.size for one in missing)
        with anyio.move_on_after(wait_s):
            missing = await _not_there(missing)
            await asyncio.to_thread(_require_room_for, missing)
            await self._bring_all(missing)
        return Preparation(
            bytes_total=bytes_total,
            bytes_missing=await asyncio.to_thread(_missing_bytes, missing),
            files_missing=len(missing),
        )

    async def how_far(self, wanted: Sequence[Wanted]) -> Preparation:
        """As far as lengths on the disk tell. Asks nobody and hashes nothing, so that no file counts as verified."""
        distinct = _distinct(wanted)
        return Preparation(
            bytes_total=sum(one.file.size for one in distinct),
            bytes_missing=await asyncio.to_thread(_missing_bytes, distinct),
            files_missing=len(distinct),
        )

    async def _bring_all(self, missing: list[Wanted]) -> None:
        """Takes each out of the list once it is there. Raises the first error when nothing else goes on."""
        failed: list[GpurunError] = []
        limit = anyio.CapacityLimiter(_FILES)

        async def bring(one: Wanted) -> None:
            async with limit:
                try:
                    await self._bring_one(one)
                    missing.remove(one)
                except GpurunError as error:
                    failed.append(error)
                    tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for one in tuple(missing):
                tasks.start_soon(bring, one)
        if failed:
            raise failed[0]

    async def _bring_one(self, one: Wanted) -> None:
        while not await _is_there(one):
            part = await take_part(one.cache, one.file, one.asked)
            if part is None:  # a reader or another call brings it, in this process or another one
                await self._clock.sleep(_LOOK_AGAIN_S)
                continue
            try:
                if await _is_there(one):  # it came between the look and the lock
                    await on_disk(one.asked, part.discard)
                    continue
                sha256 = await self._fill(one, part)
                await self._settle(one, part, sha256)
            finally:
                part.close()

    async def _fill(self, one: Wanted, part: Part) -> str:
        if one.file.size - part.found_all >= RANGE_BYTES:
            for _ in range(2):  # a signed address may have become too old
                url = await self._wire.store_url(one.asked)
                if url is None or await asyncio.to_thread(_has_proxy, url):
                    break
                try:
                    return await self._by_ranges(url, one, part)
                except NoRanges:
                    continue
        return await self._downloads.fill(one.asked, one.file, part)  # tells what is wrong, if anything is

    async def _by_ranges(self, url: httpx2.URL, one: Wanted, part: Part) -> str:
        if self._connections is None:
            self._connections = anyio.CapacityLimiter(CONNECTIONS)
        await on_disk(one.asked, part.by_ranges)
        try:
            ranges = Ranges(url, part, one.file.size, idle_timeout_s=self._idle_timeout_s)
            return await ranges.fetch(self._connections)
        except NotWritten as exc:
            raise not_kept(one.asked, exc.cause) from exc

    async def _settle(self, one: Wanted, part: Part, sha256: str) -> None:
        """Right bytes are kept, wrong ones are not, and fetched once more."""
        if sha256 == one.file.sha256:
            await on_disk(one.asked, one.cache.keep, part, sha256)
            del self._wrong[sha256]
            return
        await on_disk(one.asked, part.discard)
        if part.found_all:
            return  # what the broken download left may be at fault, not the hub
        self._wrong[one.file.sha256] += 1
        if self._wrong[one.file.sha256] >= _TRIES:
            del self._wrong[one.file.sha256]
            raise wrong_bytes(one.asked, one.file, sha256)


def _distinct(wanted: Iterable[Wanted]) -> list[Wanted]:
    """Each file once, in the order of its first."""
    return list({(one.cache.folder, one.file.sha256): one for one in wanted}.values())


async def _not_there(wanted: Sequence[Wanted]) -> list[Wanted]:
    """In the same order. Several are hashed at a time: one hash keeps one core busy. Raises the first error."""
    found: dict[int, bool] = {}
    failed: list[GpurunError] = []
    limit = anyio.CapacityLimiter(_FILES)

    async def look(number: int, one: Wanted) -> None:
        async with limit:
            try:
                found[number] = await _is_there(one)
            except GpurunError as error:
                failed.append(error)
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for number, one in enumerate(wanted):
            tasks.start_soon(look, number, one)
    if failed:
        raise failed[0]
    return [one for number, one in enumerate(wanted) if not found[number]]


async def _is_there(one: Wanted) -> bool:
    return await asyncio.to_thread(one.cache.find, one.file.sha256, one.file.size) is not None


def _require_room_for(missing: Iterable[Wanted]) -> None:
    by_folder: Counter[Path] = Counter()
    for one in missing:
        by_folder[one.cache.folder.parent] += one.cache.missing_bytes(one.file.sha256, one.file.size)
    for folder, n_bytes in by_folder.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            require_room(folder, n_bytes)
        except OSError as exc:
            raise HubUnavailable(f"The bot cannot write to {folder} ({exc.strerror}).") from exc


def _missing_bytes(missing: Iterable[Wanted]) -> int:
    return sum(one.cache.missing_bytes(one.file.sha256, one.file.size) for one in missing)


def _has_proxy(url: httpx2.URL) -> bool:
    """The environment names one, which httpx2 knows how to use."""
    from urllib.request import getproxies, proxy_bypass

    return url.scheme in getproxies() and not proxy_bypass(url.host)
