"""How instances reach the bot."""

from __future__ import annotations

from typing import Protocol

from gpurun.domain.offer import Uplink


class Uplinks(Protocol):
    """Idempotent; one address per attempt."""

    async def open(self, attempt_id: str, provider: str) -> Uplink:
        """The agent API answers there for this attempt from now on."""
        ...

    async def close(self, attempt_id: str) -> None:
        """Silent when it is not open."""
        ...
