"""Images that are built from a Dockerfile, by the real engine."""

from __future__ import annotations

import asyncio
import io
import secrets
import tarfile
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

from gpurun.domain.build import Building, BuildPin, BuildPlan
from gpurun.domain.config import BuildKeys
from gpurun.domain.errors import ProviderRefused, ProviderUnavailable
from gpurun.domain.image import RegistryLogin
from gpurun.domain.offer import Launch
from gpurun.plan.build import plan_build
from gpurun.plan.context import ContextReader, ContextTar
from gpurun.providers.docker import DockerConfig, DockerProvider, builds
from gpurun.providers.docker.built_image import KEEP, LABEL_INPUTS, REPOSITORY, sweep
from tests.docker.built import inputs_of_builds, remove_built, tags_of_builds
from tests.docker.launching import Bench, Launches
from tests.docker.sick_registry import sick_registry

pytestmark = [pytest.mark.docker, pytest.mark.timeout(180)]


@dataclass
class Builder:
    """Builds Dockerfiles that nobody else has, and removes what comes of them."""

    bench: Bench
    launches: Launches
    base: str
    made: list[str] = field(default_factory=list)

    def plan(self, text: str, files: dict[str, bytes] | None = None, **args: str) -> tuple[BuildPlan, bytes]:
        """With the archive of its commit. `BASE` in the text is an image with a shell."""
        archive = tar_of({"Dockerfile": b"", "word": secrets.token_bytes(8), **(files or {})})
        reader = ContextReader(dockerfile="Dockerfile", context="")
        reader.feed(archive)
        found = reader.contents()
        pin = BuildPin(
            dockerfile="Dockerfile", context="", text=text.replace("BASE", self.base), ignore=found.ignore.decode(),
            context_sha256=found.context_sha256, platform="linux/amd64",
        )  # fmt: skip
        plan = plan_build(BuildKeys(context=".", args=args), pin, {})
        self.made.append(plan.inputs_sha256)
        return plan, archive

    def launch(self, plan: BuildPlan, script: str = "true", **changes: Any) -> Launch:
        """Of an attempt of its own."""
        return replace(self.launches(self.base, script, **changes), image=plan.image)

    async def ask(
        self, built: tuple[BuildPlan, bytes], launch: Launch, *, wait_s: float = 60, on: Any = None
    ) -> Building:
        """One question."""
        plan, archive = built
        return await (on or self.bench.provider).build(launch, plan, lambda: context(plan, archive), wait_s=wait_s)

    async def until(self, words: bytes, built: tuple[BuildPlan, bytes], launch: Launch, *, on: Any = None) -> Building:
        """Asked until the build has said that."""
        while words not in (building := await self.ask(built, launch, wait_s=0.2, on=on)).output.said:
            assert not building.output.over, building
        return building

    def containers(self) -> list[str]:
        """Of builds of this test: what a step runs in has no name of ours, but our network."""
        network = self.bench.provider._config.network
        return [one["Id"] for one in self.bench.engine.containers(all=True, filters={"network": network})]


async def context(plan: BuildPlan, archive: bytes) -> AsyncGenerator[bytes, None]:
    made = ContextTar(plan)
    yield made.feed(archive)
    yield made.end()


def tar_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
async def builder(docker_bench, launches, base_images):
    builder = Builder(docker_bench, launches, base_images.busybox)
    yield builder
    with anyio.fail_after(30):
        while builder.containers():  # the engine ends a build beside
            await anyio.sleep(0.05)
    remove_built(docker_bench.engine, builder.made)


@pytest.fixture
async def others(docker_network):
    """Another process, as far as an engine can tell."""
    made: list[DockerProvider] = []

    def make(**more: Any) -> DockerProvider:
        made.append(DockerProvider(DockerConfig(network=docker_network), **more))
        return made[-1]

    yield make
    for provider in made:
        await provider.close()


async def test_an_image_is_built_once_and_runs(builder: Builder, others):
    built = builder.plan(
        "FROM BASE AS tools\nRUN echo made > /tool\nFROM BASE\nARG WORD\nARG TARGETARCH\n"
        "COPY --from=tools /tool /tool\nRUN echo $WORD on $TARGETARCH > /word\nCOPY . /ctx\n",
        {"kept.txt": b"kept", "left.md": b"x", ".dockerignore": b"*.md\n"},
        WORD="hello",
    )
    plan, _ = built
    launch = builder.launch(plan, "cat /tool /word /ctx/kept.txt; ls -A /ctx")
    building = await builder.ask(built, launch)
    assert building.ready, building
    assert b"Successfully built" in building.output.said
    assert building.output.over
    assert building.output.took_s is not None
    assert building.output.took_s > 0
    found = builder.bench.engine.inspect_image(str(plan.image))
    assert found["Config"]["Labels"] == {LABEL_INPUTS: plan.inputs_sha256}
    # made once more by another process, and told
    again = await builder.ask(built, builder.launch(plan), on=others())
    assert (again.ready, again.message, again.output.took_s) == (True, "build cached", None)
    assert again.output.said.startswith(b"::gpurun:: build cached: Dockerfile with these inputs is gpurun-build:")
    # who waited for it hears the same again, not that there was nothing to do
    assert (await builder.ask(built, launch)).output.said == building.output.said
    said = await builder.bench.output(launch)
    assert said == "made\nhello on amd64\nkeptDockerfile\nkept.txt\nword\n"


async def test_a_step_that_fails_is_told_with_its_number_and_is_tried_again_for_the_next(builder: Builder):
    built = builder.plan("FROM BASE\nRUN echo doing; exit 3\n")
    first = builder.launch(built[0])
    building = await builder.ask(built, first)
    assert (building.ready, building.step) == (False, 2)
    assert building.failed == "The command '/bin/sh -c echo doing; exit 3' returned a non-zero code: 3"
    assert b"doing\n" in building.output.said
    assert building.output.over
    again = await builder.ask(built, first)
    assert again.output.id == building.output.id
    other = await builder.ask(built, builder.launch(built[0]))
    assert other.failed == building.failed
    assert other.output.id != building.output.id
    missing = builder.plan("FROM BASE\nCOPY nope /\n")
    assert "COPY failed: file not found" in (await builder.ask(missing, builder.launch(missing[0]))).failed
    wrong = builder.plan("FROM BASE\nEXPOSE nope\n")
    assert "nope" in (await builder.ask(wrong, builder.launch(wrong[0]))).failed


async def test_two_attempts_share_one_build_and_hear_all_of_it(builder: Builder):
    built = builder.plan("FROM BASE\nRUN echo one; sleep 1; echo two\n")
    launches = [builder.launch(built[0]) for _ in range(2)]
    both = await asyncio.gather(*(builder.ask(built, launch) for launch in launches))
    assert both[0].output == both[1].output
    assert both[0].ready
    assert both[0].output.said.count(b"Running in") == 2  # RUN and LABEL


async def test_a_step_has_the_memory_of_the_job_and_the_network_of_jobs(builder: Builder, docker_network, engine):
    built = builder.plan(
        "FROM BASE\nRUN cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max; ip addr; true\n"
    )
    building = await builder.ask(built, builder.launch(built[0]))
    assert b"%d\n" % (256 * 2**20) in building.output.said
    subnet = engine.inspect_network(docker_network)["IPAM"]["Config"][0]["Subnet"].rsplit(".", 2)[0]
    assert f"inet {subnet}.".encode() in building.output.said


async def test_a_build_whose_process_ends_leaves_nothing_and_is_built_by_the_next(builder: Builder, others):
    built = builder.plan("FROM BASE\nRUN echo begun; sleep 2; echo done\n")
    first, launch = others(), builder.launch(built[0])
    building = await builder.until(b"begun\n", built, launch, on=first)
    assert building.message == "building image, step 2/3"
    await first.close()
    with pytest.raises(ProviderUnavailable, match="The build was ended: gpurun ends"):
        await builder.ask(built, launch, on=first)
    again = await builder.ask(built, builder.launch(built[0]))
    assert again.ready
    assert b"done\n" in again.output.said
    assert builder.containers() == []


@pytest.mark.parametrize(
    ("waited_s", "asked", "told"),
    [(builds.ABANDONED_S + 1, False, "nobody waits for it any more"), (builds.LIMIT_S + 1, True, "longer than the 25")],
)
async def test_a_build_that_nobody_waits_for_or_that_takes_too_long_is_ended(
    builder: Builder, others, waited_s, asked, told
):
    now = [0.0]
    provider = others(monotonic=lambda: now[0])
    built = builder.plan("FROM BASE\nRUN echo begun; sleep 100\n")
    launch = builder.launch(built[0])
    await builder.until(b"begun\n", built, launch, on=provider)
    now[0] += waited_s
    if asked:
        building = await builder.ask(built, launch, on=provider)
        assert told in building.failed
        assert building.step == 2
    else:
        (ended,) = (build._end for build in provider._builds._builds.values())
        assert await asyncio.to_thread(ended.wait, 30)
        with pytest.raises(ProviderUnavailable, match=told):
            await builder.ask(built, launch, on=provider)


async def test_an_image_that_the_dockerfile_names_is_pulled_with_its_own_login_or_refused(builder: Builder):
    with sick_registry() as registry:
        built = builder.plan(f"FROM {registry.image}\nCOPY . /x\n")
        registry.refuse_manifests = (401, "UNAUTHORIZED", "authentication required")
        with pytest.raises(ProviderRefused) as caught:
            await builder.ask(built, builder.launch(built[0]))
        assert caught.value.kind == "auth"
        registry.refuse_manifests = (404, "MANIFEST_UNKNOWN", "manifest unknown")
        with pytest.raises(ProviderRefused, match="manifest unknown"):
            await builder.ask(built, builder.launch(built[0]))
        registry.refuse_manifests = None
        login = RegistryLogin(username="ci", password=SecretStr("for-nobody"), server="ghcr.io")
        assert (await builder.ask(built, builder.launch(built[0], login=login))).ready
        builder.bench.engine.remove_image(f"{REPOSITORY}:{built[0].inputs_sha256}", force=True)
        builder.bench.engine.remove_image(registry.image, force=True)


async def test_what_nobody_needed_for_long_goes_and_what_a_container_is_made_of_stays(builder: Builder):
    engine = builder.bench.engine
    plans = [builder.plan("FROM BASE AS a\nRUN echo x\nFROM BASE\nCOPY . /c\n") for _ in range(3)]
    for built in plans:
        assert (await builder.ask(built, builder.launch(built[0]))).ready
    old, running, used = (built[0] for built in plans)
    launch = builder.launch(running, "sleep 60")
    ref = await builder.bench.up(launch)
    others = inputs_of_builds(engine) - {old.inputs_sha256, running.inputs_sha256}
    gone = sweep(engine, spare=others, now=datetime.now(UTC) + KEEP + timedelta(seconds=60))
    assert set(gone) == {old.inputs_sha256, running.inputs_sha256}
    assert not [tag for tag in tags_of_builds(engine) if old.inputs_sha256 in tag]
    assert [tag for tag in tags_of_builds(engine) if used.inputs_sha256 in tag]
    assert engine.inspect_container(ref)["State"]["Running"]
    await builder.bench.provider.destroy(ref)
