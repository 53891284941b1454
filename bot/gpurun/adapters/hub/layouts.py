"""Pins into the cache and onto the shelf, on behalf of attempts that ask again and again how far it is."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace

import anyio

from gpurun.adapters.hub.cache import free_bytes, unreadable
from gpurun.adapters.hub.prefetch import Prefetches, Wanted
from gpurun.adapters.hub.shelf import Limits, Shelf
from gpurun.domain.errors import GpurunError, HubUnavailable
from gpurun.domain.plan import ModelPin
from gpurun.ports.bytes import Preparation
from gpurun.ports.clock import Clock

FORGOTTEN_S = 60.0
"""A download that nobody has asked for so long stops, and is continued by whoever asks next."""


class _Bringing:
    """A task that goes on between the questions."""

    def __init__(self, bring: asyncio.Task[Preparation | GpurunError], scope: anyio.CancelScope) -> None:
        self.task = bring
        self._scope = scope

    def asked(self) -> None:
        """Somebody still wants it."""
        self._scope.deadline = anyio.current_time() + FORGOTTEN_S


class Layouts:
    """Of one process."""

    def __init__(self, shelf: Shelf, prefetches: Prefetches, clock: Clock, *, max_bytes: int | None) -> None:
        self._shelf = shelf
        self._prefetches = prefetches
        self._clock = clock
        self._limits = Limits(max_bytes=max_bytes)
        self._bringing: dict[str, _Bringing] = {}

    async def lay_out(self, key: str, pins: Sequence[ModelPin], wanted: Sequence[Wanted], wait_s: float) -> Preparation:
        """How far it is; with the folder once all is there. Raises PinNotFound, HubUnavailable."""
        bringing = self._bringing.get(key)
        if bringing is None:
            bringing = self._bringing[key] = self._start(wanted)
        bringing.asked()
        await asyncio.wait({bringing.task}, timeout=wait_s)
        if not bringing.task.done():
            return await self._prefetches.how_far(wanted)
        if self._bringing.get(key) is bringing:
            del self._bringing[key]
        done = bringing.task.result()
        if isinstance(done, GpurunError):
            raise done
        if not done.ready:  # it was forgotten, and is wanted again
            return done
        try:
            view = await asyncio.to_thread(self._shelf.lay_out, key, pins, self._clock.now())
        except OSError as exc:
            raise HubUnavailable(
                f"The weights cannot be laid out in {self._shelf.folder}: {exc.strerror}. It needs a file system with "
                "hard links."
            ) from exc
        return done if view is None else replace(done, folder=str(view))

    async def tidy(self) -> None:
        """As the limits say."""
        await asyncio.to_thread(self._shelf.clear, self._limits, self._clock.now())

    async def close(self) -> None:
        """What is on its way stops."""
        tasks = [one.task for one in self._bringing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, wanted: Sequence[Wanted]) -> _Bringing:
        scope = anyio.CancelScope()

        async def bring() -> Preparation | GpurunError:
            with scope:
                try:
                    await self._make_room(wanted)
                    return await self._prefetches.bring(wanted, math.inf)
                except GpurunError as error:  # a value, so that one that nobody waits for any more is not unread
                    return error
                except OSError as error:  # while making room
                    return unreadable(self._shelf.folder, error)
            return await self._prefetches.how_far(wanted)

        return _Bringing(asyncio.create_task(bring()), scope)  # noqa: TID251 - it outlives the call, and `close` ends it

    async def _make_room(self, wanted: Sequence[Wanted]) -> None:
        """For what is to come: below the limit, and on the disk."""
        coming = (await self._prefetches.how_far(wanted)).bytes_missing
        if not coming:
            return

        def clear() -> None:
            now, most = self._clock.now(), self._limits.max_bytes
            if most is not None:
                self._shelf.clear(Limits(max_bytes=max(1, most - coming)), now)
            lacking = coming - free_bytes(self._shelf.folder)
            if lacking > 0:
                there = sum(one.size for one in self._shelf.list(now))
                self._shelf.clear(Limits(max_bytes=max(1, there - lacking)), now)

        await asyncio.to_thread(clear)
