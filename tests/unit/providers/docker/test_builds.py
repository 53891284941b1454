"""Who shares a build, who hears its end, and what ends it, by an engine that does what a test wants."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from gpurun.domain.build import Building, BuildPlan
from gpurun.domain.errors import BuildRefused, BuildUnavailable, ProviderRefused, ProviderUnavailable
from gpurun.domain.ids import ImageRef
from gpurun.domain.image import RegistryLogin
from gpurun.domain.offer import Launch
from gpurun.domain.plan import Resources
from gpurun.providers.docker import build_folder, builds
from gpurun.providers.docker.builds import BuildHost, DockerBuilds
from gpurun.providers.docker.built_image import LABEL_INPUTS
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
    now: list[float] = field(default_factory=lambda: [0.0])

    def __post_init__(self) -> None:
        self.share(None)

    def share(self, folder: Path | None) -> None:
        """Builds as those of another process, with its locks and contexts in that folder."""
        host = BuildHost(
            limits=lambda api, needs: Limits(0, needs.memory_mib, 64), ready=lambda api, launch: "jobs",
            space=lambda api: None, min_free_mib=0, folder=folder,
        )  # fmt: skip
        self.builds = DockerBuilds(Engine(self.engine.url), lambda: self.now[0], host)

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
    async with asyncio.timeout(20):
        while (await site.ask(first, wait_s=0.01)).message != "pulling image":
            pass
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


async def test_who_pulls_with_another_login_or_has_other_memory_does_not_share_the_end(site: Site):
    site.share(site.engine.socket.parent / "builds")
    denied = threading.Event()
    site.engine.pull_events = [denied, {"error": "denied", "errorDetail": {"message": "denied"}}]
    anonymous = site.launch()
    await site.ask(anonymous, wait_s=0.0)
    await until(lambda: site.engine.pulls)
    site.engine.pull_events = []
    login = RegistryLogin(username="ci", password=SecretStr("for-nobody"))
    assert (await site.ask(site.launch(login=login))).ready
    denied.set()
    with pytest.raises(ProviderRefused, match="denied"):
        await site.ask(anonymous)

    del site.engine.labels[IMAGE]
    goes_on = threading.Event()
    killed = {"errorDetail": {"code": 137, "message": "returned a non-zero code: 137"}, "error": "137"}
    site.engine.build_events = [{"stream": "Step 1/1 : FROM a\n"}, goes_on, killed]
    small, large = site.launch(needs=Resources(memory_mib=64)), site.launch(needs=Resources(memory_mib=4096))
    await site.ask(small, wait_s=0.0)
    await until(lambda: len(site.engine.builds) == 2)
    building = await site.ask(large, wait_s=0.0)
    site.engine.build_events = [{"stream": "Step 1/1 : FROM a\n"}]
    goes_on.set()
    assert "the 64MB of memory ran out" in (await site.ask(small)).failed
    building = await site.ask(large)
    assert building.ready
    assert [query["memory"] for query in site.engine.builds[1:]] == [str(64 << 20), str(4096 << 20)]


async def test_what_was_built_meanwhile_with_another_login_is_not_built_twice(site: Site):
    site.share(site.engine.socket.parent / "builds")
    goes_on = threading.Event()
    site.engine.build_events = [{"stream": "Step 1/1 : FROM a\n"}, goes_on]
    one, other = site.launch(), site.launch(needs=Resources(memory_mib=512))
    await site.ask(one, wait_s=0.0)
    await until(lambda: site.engine.builds)
    async with asyncio.timeout(20):
        while (building := await site.ask(other, wait_s=0.1)).message != "building image, for another job":
            assert not building.output.over
    goes_on.set()
    assert (await site.ask(one)).ready
    building = await site.ask(other)
    assert building.ready
    assert building.output.said == b"::gpurun:: gpurun-build:555555555555\xe2\x80\xa6 was built for another job\n"
    assert len(site.engine.builds) == 1


async def test_an_image_that_somebody_removed_after_its_build_is_built_again(site: Site):
    launch = site.launch()
    first = await site.ask(launch)
    assert (await site.ask(launch)).output == first.output
    del site.engine.labels[IMAGE]
    again = await site.ask(launch)
    assert again.ready
    assert again.output.id != first.output.id
    assert IMAGE in site.engine.labels
    assert len(site.engine.builds) == 2


@pytest.mark.parametrize("trouble", ["list", "remove"])
async def test_what_is_built_is_ready_whatever_becomes_of_the_clearing_up(site: Site, trouble: str):
    """Only images above the one before are in the way; old builds are not looked for here."""
    site.engine.labels["gpurun-ready:old"] = {LABEL_INPUTS: INPUTS}
    asked: list[tuple[str, str]] = []

    def refuses(method: str, path: str) -> tuple[int, str] | None:
        asked.append((method, path))
        in_trouble = path == "/images/json" if trouble == "list" else method == "DELETE"
        return (500, "the daemon is busy") if in_trouble else None

    site.engine.refuses = refuses
    assert (await site.ask(site.launch())).ready
    assert asked.count(("GET", "/images/json")) == 1


async def test_the_time_of_a_build_does_not_run_while_it_is_cleared_up(site: Site):
    begun, slow = threading.Event(), threading.Event()

    def refuses(method: str, path: str) -> None:
        if path == "/images/json":
            begun.set()
            slow.wait(10)

    site.engine.refuses = refuses
    launch = site.launch()
    await site.ask(launch, wait_s=0.0)
    await until(begun.is_set)
    site.now[0] += builds.LIMIT_S + 1
    assert not (await site.ask(launch, wait_s=2 * builds.WATCH_S)).output.over
    slow.set()
    building = await site.ask(launch)
    assert (building.ready, building.output.took_s) == (True, 0.0)


@pytest.mark.parametrize(
    ("said", "error"), [("no space left on device", BuildRefused), ("Step 2/2 : RUN x", BuildUnavailable)]
)
async def test_an_end_that_is_no_failure_of_the_dockerfile_comes_with_what_was_said(site: Site, said, error):
    site.engine.build_events = [{"stream": "Step 1/2 : FROM a\n"}, {"error": said}]
    if error is BuildUnavailable:
        site.engine.build_events[1:] = [{"stream": f"{said}\n"}, {"stream": "", "error": ""}]  # and no image
    with pytest.raises(error) as caught:
        await site.ask(site.launch())
    assert caught.value.output.said == f"Step 1/2 : FROM a\n{said}\n".encode()
    assert caught.value.output.over


async def test_a_context_of_a_build_that_was_ended_is_closed(site: Site):
    closed, begun = [], asyncio.Event()

    async def context() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                begun.set()
                yield bytes(512)
        finally:
            closed.append(True)

    launch = site.launch()
    await site.builds.build(launch, PLAN, context, wait_s=0.0)
    await begun.wait()
    site.builds.close()
    await until(lambda: closed)
    with pytest.raises(ProviderUnavailable, match="gpurun ends"):
        await site.ask(launch)


@pytest.mark.parametrize(
    "trigger",
    ["ADD https://e.org/x /", "add ht$S://e.org/x /", 'ADD ["https://e.org/x", "/"]', "COPY --from=a/b:1 /x /x"],
)
async def test_what_a_base_image_would_bring_in_unpinned_is_refused(site: Site, trigger: str):
    site.engine.triggers = ["RUN true", trigger]
    building = await site.ask(site.launch())
    assert building.failed == (
        f"The image {BASE} has `ONBUILD {trigger}`, which may bring in what nobody pinned. Use an image without it."
    )
    assert site.engine.builds == []


async def test_what_a_base_image_takes_of_the_commit_is_built(site: Site):
    site.engine.triggers = ["COPY . /app", "COPY --chown=1:1 a b", "ADD x.tar.gz /", "RUN pip install /app"]
    assert (await site.ask(site.launch())).ready


async def test_a_full_disk_of_the_bot_is_told_as_its_own(site: Site, tmp_path, monkeypatch):
    wall = tmp_path / "wall"
    wall.write_bytes(b"")
    site.share(wall / "builds")
    with pytest.raises(
        ProviderRefused, match=r"gpurun cannot use its own folder for builds, .*wall/builds: Not a directory"
    ) as caught:
        await site.ask(site.launch())
    assert caught.value.kind == "capacity"

    monkeypatch.setattr(build_folder.tempfile, "TemporaryFile", lambda **_: Path("/dev/full").open("w+b"))  # noqa: SIM115
    site.share(tmp_path / "builds")
    with pytest.raises(ProviderRefused, match=r"own folder .*builds: No space left on device") as caught:
        await site.ask(site.launch())
    assert caught.value.kind == "capacity"
    assert site.engine.builds == []
