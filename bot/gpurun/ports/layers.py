"""Records of layers of `setup`. Their bytes lie in volumes, where a provider mounts them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from gpurun.domain.layer import LayerUse, LayerWish


class Layers(Protocol):
    """Of one machine, shared by all processes on it. `user` is an attempt's id."""

    async def use(self, wish: LayerWish, *, user: str, until: datetime) -> LayerUse | None:
        """A layer to be taken, or a volume in which one may be made. The same answer for the same user.

        None: one is there, and who made it may write to it yet. Nothing that is in use is removed until `let_go`, or
        some time after `until`.
        """
        ...

    async def of(self, user: str) -> LayerUse | None:
        """What it was given."""
        ...

    async def made(self, user: str, *, sha256: str, size: int, setup_ms: int) -> str:
        """From now on others may take it. Why not; empty when it is kept, also when that was said before."""
        ...

    async def spoilt(self, user: str) -> None:
        """What it was given is of no use: it is forgotten, when it is of the scope for which this user would make one.
        Else the other scope keeps it, and this one does not get it again.
        """
        ...

    async def let_go(self, user: str) -> tuple[str, ...]:
        """Its instance is gone. Volumes that nobody needs any more."""
        ...

    async def users(self) -> frozenset[str]:
        """Attempts that use something, as far as nobody let them go."""
        ...

    async def shelf(self) -> str:
        """The label of all volumes that are known here."""
        ...

    async def tidy(self, over: Collection[str], volumes: Collection[str]) -> tuple[str, ...]:
        """Lets those attempts go, and the least recently used beyond the limit. Which of `volumes`, listed before,
        nobody needs any more.
        """
        ...
