"""Launches with a boot script of the test's own, and the end of a container without sleeping."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from gpurun.domain.ids import BuiltImage, ImageRef
from gpurun.domain.offer import Launch, Offer, Uplink
from gpurun.domain.plan import Resources
from tests.fakes.clock import FakeChance

INSTALL = "doctest0"
AGENT = f"not really an agent, of {os.getpid()}".encode()
"""Another one per session: its images with this agent are removed while other sessions run."""
OFFER = Offer(provider="docker", id="local", label="local Docker", usd_per_hour_micro=0, declared=True)


@dataclass
class Launches:
    """Makes launches whose names nobody else uses. The uplink is a folder of the test."""

    folder: Path
    chance: FakeChance
    needs: Resources = field(default_factory=lambda: Resources(memory_mib=256))
    made: list[Launch] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "up").mkdir()
        (self.folder / "agent.pyz").write_bytes(AGENT)

    def __call__(self, image: str, script: str, *, env: Mapping[str, str] | None = None, **changes: Any) -> Launch:
        attempt = self.chance.ulid()
        values: dict[str, Any] = {
            "name": f"gpurun-{INSTALL}-{attempt}-t9zzzz",
            "attempt_id": attempt,
            "install": INSTALL,
            "offer": OFFER,
            "image": image if isinstance(image, BuiltImage) else ImageRef(image),
            "needs": self.needs,
            "hard_deadline": datetime(2030, 1, 1, tzinfo=UTC),
            "uplink": Uplink(kind="unix", address=str(self.folder / "up")),
            "boot_script": script,
            "agent_path": str(self.folder / "agent.pyz"),
            "agent_sha256": hashlib.sha256(AGENT).hexdigest(),
            "claim_token": SecretStr("claim-me"),
            "env": env or {},
        }
        self.made.append(Launch(**{**values, **changes}))
        return self.made[-1]


@dataclass
class Bench:
    """A provider, the engine behind it, and what tests do with both."""

    provider: Any
    """A `DockerProvider`."""
    engine: Any

    async def up(self, launch: Launch) -> str:
        """Prepared and created; the ref."""
        ready = await self.provider.prepare(launch, wait_s=60)
        assert ready.ready, ready
        return await self.provider.create(launch)

    async def output(self, launch: Launch) -> str:
        """What the boot script printed, after it ended with 0."""
        ref = await self.up(launch)
        ended = self.engine.wait(ref)
        said = (await self.provider.logs(ref, max_bytes=65536)).decode()
        assert ended["StatusCode"] == 0, said
        await self.provider.destroy(ref)
        return said


class Faulty:
    """The engine's client, whose named call happens and then loses its answer."""

    def __init__(self, client: Any, call: str, error: Exception, *, before: Any = None) -> None:
        self._client, self._call, self._error, self._before = client, call, error, before

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._client, name)
        if name != self._call:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._before is None:
                real(*args, **kwargs)
            raise self._error

        return call
