"""`python -m bench.live_house STATE INSTANCES`: the house of a server on a cloud that only says what runs.

Everything is the product's own but the cloud, and the forge, which has no publication to carry out.
STATE holds `up/`, the sockets of the attempts. INSTANCES: one `<ref> <name>` a line. Calls that would make or end an
instance are appended to STATE/orders.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import anyio

from gpurun import wiring
from gpurun.cli.logs import log_trouble_only
from gpurun.domain.offer import ChargeLine, InstanceState, Launch, Offer, Owned
from gpurun.domain.plan import Resources
from gpurun.ports.provider import Provider
from gpurun.settings import Settings
from tests.fakes.parts import SourceOnlyForge

NAME = "fake"


class StillCloud:
    """`ports.provider.Provider`: whatever was made runs for ever."""

    name = NAME
    listed_within_s = 180.0
    observe_every_s = 15.0

    def __init__(self, state: Path, instances: Path) -> None:
        self._orders = state / "orders"
        pairs = [line.split() for line in instances.read_text().splitlines()]
        at = datetime.now(UTC)
        self._all = tuple(Owned(ref=ref, name=name, state=InstanceState.RUNNING, created_at=at) for ref, name in pairs)

    async def offers(self, need: Resources) -> tuple[Offer, ...]:
        return ()

    async def create(self, launch: Launch) -> str:
        self._note("create", launch.name)
        return launch.name

    async def destroy(self, ref: str) -> None:
        self._note("destroy", ref)

    async def list_owned(self, prefix: str) -> tuple[Owned, ...]:
        return tuple(one for one in self._all if one.name.startswith(prefix))

    async def describe(self, ref: str) -> Owned | None:
        return next((one for one in self._all if one.ref == ref), None)

    async def charges(self, ref: str) -> tuple[ChargeLine, ...]:
        return ()

    async def logs(self, ref: str, *, max_bytes: int) -> bytes:
        return b""

    async def close(self) -> None: ...

    def _note(self, order: str, about: str) -> None:
        with self._orders.open("a") as file:
            file.write(f"{order} {about}\n")


async def live(state: Path, instances: Path) -> None:
    """Until it is killed."""

    async def providers(_stack: AsyncExitStack, *_settings: object) -> Mapping[str, Provider]:
        return {NAME: StillCloud(state, instances)}

    wiring.open_providers = providers  # type: ignore[assignment]  # the bench's own cloud instead
    settings = Settings(state_dir=state)
    async with AsyncExitStack() as stack:
        house = await wiring.open_house(stack, settings, wiring.server_folders(settings).made(), SourceOnlyForge())
        gc.freeze()
        print("ready", flush=True)
        with contextlib.suppress(asyncio.CancelledError):
            await house.live(anyio.Event())


if __name__ == "__main__":
    log_trouble_only()
    anyio.run(live, Path(sys.argv[1]), Path(sys.argv[2]), backend_options={"use_uvloop": True})
