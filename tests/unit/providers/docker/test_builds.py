"""Who shares a build, who hears its end, and what ends it, by an engine that does what a test wants."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gpurun.domain.build import Building, BuildPlan
from gpurun.domain.errors import ProviderUnavailable
from gpurun.domain.ids import ImageRef
from gpurun.domain.offer import Launch
from gpurun.providers.docker import builds
from gpurun.providers.docker.builds import BuildHost, DockerBuilds
from gpurun.providers.docker.container import Limits
from gpurun.providers.docker.engine import Engine
from gpurun.providers.docker.pull import SILENCE_S
from tests.docker.launching import Launches
from tests.fakes.clock import FakeChance, FakeClock
from tests.fakes.engine import FakeEngine, fake_engine

BASE = "ghcr.io/org/base@sha256:" + "4" * 64
INPUTS = "5" * 64
IMAGE = f"gpurun-build:{INPUTS}"
PLAN = BuildPlan(
    inputs_sha256=INPUTS, dockerfile="Dockerfile", context="", text=f"FROM {BASE}\n", context_sha256="6" * 64,
    images=(ImageRef(BASE),),
)  # fmt: skip


@dataclass
class Site:
    """Builds on the fake engine, and a clock that the test moves."""

    engine: FakeEngine
    launches: Launches
    folder: Path | None = None
    now: list[float] = field(default_factory=lambda: [0.0])

    def __post_init__(self) -> None:
        self.builds = DockerBuilds(Engine(self.engine.url), lambda: self.now[0], self._host())

    def _host(self) -> BuildHost:
        return BuildHost(
            limits=lambda api, needs: Limits(0, needs.memory_mib, 64), ready=lambda api: None, network="jobs",
            space=lambda api: None, min_free_mib=0, folder=self.folder,
        )  # fmt: skip

    def launch(self, **changes: object) -> Launch:
        """Of an attempt of its own."""
        return replace(self.launches(BASE, "true"), image=PLAN.image, **changes)

    async def ask(self, launch: Launch, *, wait_s: float = 20.0) -> Building:
        return await self.builds.build(launch, PLAN, context, wait_s=wait_s)


async def context() -> AsyncGenerator[bytes, None]:
    yield bytes(1024)


@pytest.fixture
def site(tmp_path):
    with fake_engine(tmp_path) as engine:
        site = Site(engine, Launches(tmp_path, FakeChance(FakeClock())))
        yield site
        site.builds.close()


async def until(holds) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_pull_that_falls_silent_ends_the_build_for_all_and_the_next_begins_anew(site: Site):
    silent = threading.Event()
    site.engine.pull_events = [{"status": "Pulling", "id": "a"}, silent]
    first, other = site.launch(), site.launch()
    assert not (await site.ask(first, wait_s=0.0)).output.over
    await until(lambda: site.engine.pulls)
    assert not (await site.ask(other, wait_s=0.0)).output.over
    for _ in range(int(SILENCE_S // builds.ABANDONED_S) + 2):
        site.now[0] += builds.ABANDONED_S - 1
        await asyncio.sleep(0)
        for launch in (first, other):
            if site.now[0] <= SILENCE_S:
                assert not (await site.ask(launch, wait_s=0.0)).output.over
    for launch in (first, other):
        with pytest.raises(ProviderUnavailable, match=r"said nothing for 300 s"):
            await site.ask(launch)
    site.engine.pull_events = []
    assert (await site.ask(first)).ready
    assert (await site.ask(other)).ready
    silent.set()
    assert (await site.ask(first)).ready


async def test_a_build_that_is_ended_while_it_pulls_is_over_at_once(site: Site):
    site.engine.pull_events = [threading.Event()]
    launch = site.launch()
    await site.ask(launch, wait_s=0.0)
    await until(lambda: site.engine.pulls)
    site.builds.close()
    with pytest.raises(ProviderUnavailable, match="The build was ended: gpurun ends"):
        await site.ask(launch)
    site.engine.pull_events = []
    assert (await site.ask(site.launch())).ready
