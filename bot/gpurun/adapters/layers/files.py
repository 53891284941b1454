"""`ports.layers.Layers` over a `LayerShelf`, in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime
from typing import TypeVar

from gpurun.adapters.layers.shelf import LayerShelf
from gpurun.domain.errors import Transient
from gpurun.domain.layer import LayerUse, LayerWish
from gpurun.ports.clock import Clock

T = TypeVar("T")


class FileLayers:
    """Raises Transient while its folder cannot be used."""

    def __init__(self, shelf: LayerShelf, clock: Clock) -> None:
        self._shelf = shelf
        self._clock = clock

    async def use(self, wish: LayerWish, *, user: str, until: datetime) -> LayerUse | None:
        return await _in_thread(lambda: self._shelf.use(wish, user=user, until=until, now=self._clock.now()))

    async def of(self, user: str) -> LayerUse | None:
        return await _in_thread(lambda: self._shelf.of(user))

    async def made(self, user: str, *, sha256: str, size: int, setup_ms: int) -> str:
        now = self._clock.now()
        return await _in_thread(lambda: self._shelf.made(user, sha256=sha256, size=size, setup_ms=setup_ms, now=now))

    async def spoilt(self, user: str) -> None:
        await _in_thread(lambda: self._shelf.spoilt(user))

    async def let_go(self, user: str) -> tuple[str, ...]:
        if not self._shelf.has(user):  # most have none
            return ()
        return await _in_thread(lambda: self._shelf.let_go(user, self._clock.now()))

    async def users(self) -> frozenset[str]:
        return await _in_thread(self._shelf.users)

    async def shelf(self) -> str:
        return await _in_thread(self._shelf.id)

    async def tidy(self, over: Collection[str], volumes: Collection[str]) -> tuple[str, ...]:
        return await _in_thread(lambda: self._shelf.tidy(over, volumes, self._clock.now()))


async def _in_thread(fn: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(fn)
    except OSError as error:
        raise Transient(f"The records of setup layers cannot be used: {error.strerror}.") from error
