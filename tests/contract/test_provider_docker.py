"""`ports.provider` on a real Docker Engine: what create, list, describe, destroy, logs and prepare promise."""

from __future__ import annotations

import asyncio
import os
import shutil
from datetime import UTC, datetime, timedelta

import pytest
import requests
from docker.errors import APIError

from gpurun.domain.errors import Bug, CreateUnknown, NotYetDestroyed, ProviderRefused
from gpurun.domain.ids import ImageRef
from gpurun.domain.offer import InstanceState, Uplink
from gpurun.domain.plan import Resources
from gpurun.ports.provider import Prepares
from gpurun.providers.docker import DockerConfig, DockerProvider
from gpurun.providers.docker.network import ensure_network
from gpurun.providers.docker.ready_image import ready_name
from tests.docker.launching import Faulty

pytestmark = pytest.mark.docker


@pytest.fixture
def bench(docker_bench):
    return docker_bench


async def test_a_container_is_listed_described_and_gone_after_destroy(bench, launches, base_images):
    launch = launches(base_images.python, "exec sleep 60")
    ref = await bench.up(launch)
    (listed,) = [one for one in await bench.provider.list_owned("gpurun-doctest0-") if one.ref == ref]
    assert listed.name == launch.name
    assert listed.state is InstanceState.RUNNING
    assert abs(datetime.now(UTC) - listed.created_at) < timedelta(minutes=5)
    described = await bench.provider.describe(ref)
    assert (described.ref, described.name, described.state) == (ref, launch.name, InstanceState.RUNNING)

    await bench.provider.destroy(ref)

    assert await bench.provider.describe(ref) is None
    assert ref not in {one.ref for one in await bench.provider.list_owned("gpurun-")}
    await bench.provider.destroy(ref)  # silent: it already was gone


async def test_the_list_holds_only_what_starts_with_the_prefix_and_is_ours(bench, launches, base_images, engine):
    foreign = engine.create_container(
        base_images.busybox, command=["sleep"], name=f"gpurun-doctest0-foreign-{id(bench)}"
    )
    ref = await bench.up(launches(base_images.busybox, "exec sleep 60"))
    try:
        assert await bench.provider.list_owned("gpurun-otherone-") == ()
        refs = {one.ref for one in await bench.provider.list_owned("gpurun-doctest0-")}
        assert ref in refs
        assert foreign["Id"] not in refs
    finally:
        engine.remove_container(foreign["Id"])
        await bench.provider.destroy(ref)


async def test_an_exit_code_is_told(bench, launches, base_images):
    ref = await bench.up(launches(base_images.busybox, "exit 78"))
    bench.engine.wait(ref)
    described = await bench.provider.describe(ref)
    assert (described.state, described.exit_code) == (InstanceState.EXITED, 78)
    (listed,) = [one for one in await bench.provider.list_owned("gpurun-doctest0-") if one.ref == ref]
    assert (listed.state, listed.exit_code) == (InstanceState.EXITED, 78)
    await bench.provider.destroy(ref)


async def test_b109_logs_are_the_last_bytes_and_survive_a_missing_newline(bench, launches, base_images):
    ref = await bench.up(launches(base_images.busybox, "seq 1 3000; printf 'FINAL acc'"))
    bench.engine.wait(ref)
    said = await bench.provider.logs(ref, max_bytes=100)
    assert len(said) == 100
    assert said.endswith(b"2999\n3000\nFINAL acc")
    whole = b"".join(b"%d\n" % number for number in range(1, 3001)) + b"FINAL acc"
    assert await bench.provider.logs(ref, max_bytes=40 << 20) == whole
    await bench.provider.destroy(ref)
    assert await bench.provider.logs(ref, max_bytes=100) == b""


async def test_an_engine_has_no_bill(bench):
    assert await bench.provider.charges("whatever") == ()


async def test_create_for_the_same_attempt_finds_the_container_that_is_there(bench, launches, base_images):
    launch = launches(base_images.busybox, "exec sleep 60")
    ref = await bench.up(launch)
    assert await bench.provider.create(launch) == ref
    assert len(await bench.provider.list_owned(launch.name)) == 1
    await bench.provider.destroy(ref)


async def test_a_foreign_container_of_that_name_is_a_doubt_and_stays(bench, launches, base_images, engine):
    launch = launches(base_images.busybox, "true")
    foreign = engine.create_container(base_images.busybox, command=["sleep"], name=launch.name)["Id"]
    try:
        with pytest.raises(CreateUnknown) as caught:
            await bench.up(launch)
        assert caught.value.ref == foreign
        assert engine.inspect_container(foreign)["State"]["Status"] == "created"
    finally:
        engine.remove_container(foreign)


async def test_a_lost_answer_to_create_is_a_doubt_and_the_container_is_found_by_name(bench, launches, base_images):
    launch = launches(base_images.busybox, "exec sleep 60")
    await bench.provider.prepare(launch, wait_s=60)
    client = bench.provider._engine.client()
    bench.provider._engine._client = Faulty(client, "create_container", requests.ReadTimeout("timed out"))
    with pytest.raises(CreateUnknown) as caught:
        await bench.provider.create(launch)
    bench.provider._engine._client = client
    assert caught.value.ref is None
    (found,) = await bench.provider.list_owned(launch.name)
    assert found.state is InstanceState.BOOTING
    await bench.provider.destroy(found.ref)


async def test_a_lost_answer_to_start_is_a_doubt_that_names_the_container(bench, launches, base_images):
    launch = launches(base_images.busybox, "exec sleep 60")
    await bench.provider.prepare(launch, wait_s=60)
    client = bench.provider._engine.client()
    bench.provider._engine._client = Faulty(client, "start", requests.ReadTimeout("timed out"))
    with pytest.raises(CreateUnknown) as caught:
        await bench.provider.create(launch)
    bench.provider._engine._client = client
    (found,) = await bench.provider.list_owned(launch.name)
    assert caught.value.ref == found.ref
    await bench.provider.destroy(found.ref)


async def test_a_launch_that_the_engine_refuses_leaves_nothing(bench, launches, base_images, tmp_path):
    nowhere = Uplink(kind="unix", address=str(tmp_path / "nowhere"))
    launch = launches(base_images.busybox, "true", uplink=nowhere)
    with pytest.raises(ProviderRefused, match="bind source path does not exist") as caught:
        await bench.up(launch)
    assert caught.value.kind == "invalid"
    assert await bench.provider.list_owned(launch.name) == ()


async def test_an_image_without_a_shell_is_refused_and_leaves_nothing(bench, launches, base_images):
    launch = launches(base_images.no_shell, "true")
    with pytest.raises(ProviderRefused, match="/bin/sh") as caught:
        await bench.up(launch)
    assert caught.value.kind == "invalid"
    assert await bench.provider.list_owned(launch.name) == ()


async def test_a_removal_in_progress_is_not_gone_yet(bench, launches, base_images, engine):
    ref = await bench.up(launches(base_images.busybox, "exec sleep 60"))
    client = bench.provider._engine.client()
    busy = APIError("", response=_answer(409), explanation=f"removal of container {ref} is already in progress")
    bench.provider._engine._client = Faulty(client, "remove_container", busy, before="nothing")
    with pytest.raises(NotYetDestroyed):
        await bench.provider.destroy(ref)
    bench.provider._engine._client = client
    await bench.provider.destroy(ref)


async def test_many_attempts_destroyed_twice_at_once_all_go(bench, launches, base_images):
    refs = [await bench.up(launches(base_images.busybox, "exec sleep 60")) for _ in range(2)]

    async def until_gone(ref):
        for _ in range(50):
            try:
                return await bench.provider.destroy(ref)
            except NotYetDestroyed:
                await asyncio.sleep(0.05)  # the engine's own time
        raise AssertionError("never gone")

    await asyncio.gather(*(until_gone(ref) for ref in refs for _ in range(2)))
    assert [await bench.provider.describe(ref) for ref in refs] == [None, None]


def _answer(status: int) -> requests.Response:
    answer = requests.Response()
    answer.status_code = status
    return answer


class TestPrepare:
    async def test_it_is_a_power(self, bench):
        assert isinstance(bench.provider, Prepares)

    async def test_pulls_with_progress_and_shares_the_pull(self, bench, launches, base_images, engine):
        image = base_images.pulled
        for name in engine.images(name=image.split("@")[0]):
            engine.remove_image(name["Id"], force=True)
        first, second = launches(image, "true"), launches(image, "true")
        early = await bench.provider.prepare(first, wait_s=0)
        assert not early.ready
        assert early.message.startswith("pulling image")
        both = await asyncio.gather(bench.provider.prepare(first, wait_s=60), bench.provider.prepare(second, wait_s=60))
        assert [one.ready for one in both] == [True, True]
        again = await bench.provider.prepare(second, wait_s=0)  # what is there needs no wait
        assert again.ready

    async def test_a_digest_that_the_registry_does_not_have(self, bench, launches, base_images):
        image = base_images.busybox.split("@")[0] + "@sha256:" + "0" * 64
        for _ in range(2):  # a failure is not remembered
            with pytest.raises(ProviderRefused, match=r"not found|manifest unknown") as caught:
                await bench.provider.prepare(launches(image, "true"), wait_s=60)
            assert caught.value.kind == "invalid"

    async def test_an_agent_that_is_not_the_announced_one_is_our_bug(self, bench, launches, base_images):
        launch = launches(base_images.busybox, "true", agent_sha256="0" * 64)
        with pytest.raises(Bug, match="not the agent"):
            await bench.provider.prepare(launch, wait_s=60)

    async def test_create_alone_makes_ready_what_the_engine_has(self, bench, launches, base_images):
        await bench.provider.prepare(launches(base_images.busybox, "true"), wait_s=60)
        other_agent = launches(base_images.busybox, f"echo {id(bench)}")
        ref = await bench.provider.create(other_agent)
        bench.engine.wait(ref)
        assert await bench.provider.logs(ref, max_bytes=100) == f"{id(bench)}\n".encode()
        await bench.provider.destroy(ref)

    async def test_what_was_there_a_moment_ago_is_made_again(self, bench, launches, base_images, docker_network):
        script = f"exec sleep 60 # {id(bench)}"
        first, second = (launches(base_images.busybox, script) for _ in range(2))
        await bench.provider.destroy(await bench.up(first))
        bench.engine.remove_image(ready_name(second))
        bench.engine.remove_network(docker_network)
        ref = await bench.provider.create(second)  # which nobody prepared: both are taken to be there
        assert (await bench.provider.describe(ref)).state is InstanceState.RUNNING
        await bench.provider.destroy(ref)

    async def test_many_runs_at_once_on_a_fresh_machine_share_one_network(self, engine, docker_network):
        """An engine 20.10 made five of one name, and then none could be used."""
        for network in engine.networks(names=[docker_network]):
            engine.remove_network(network["Id"])
        at_once = [asyncio.to_thread(ensure_network, engine, docker_network) for _ in range(5)]
        found = await asyncio.gather(*at_once)
        assert len({network["Id"] for network in found}) == 1
        assert [network["Name"] for network in engine.networks(names=[docker_network])] == [docker_network]

    async def test_it_tells_which_images_it_has(self, bench, launches, base_images):
        there = launches(base_images.busybox, "true").image
        repository = base_images.busybox.split("@")[0]
        await bench.provider.prepare(launches(base_images.busybox, "true"), wait_s=60)
        assert await bench.provider.platform_of(there) == await bench.provider.platform()
        assert await bench.provider.platform_of(ImageRef(f"{repository}@sha256:{'1' * 64}")) is None

    async def test_create_without_the_image_is_refused(self, bench, launches, base_images):
        image = base_images.busybox.split("@")[0] + "@sha256:" + "1" * 64
        with pytest.raises(ProviderRefused, match="not on the Docker Engine"):
            await bench.provider.create(launches(image, "true"))


class TestOffers:
    async def test_one_offer_at_the_declared_price(self, engine, docker_network):
        provider = DockerProvider(DockerConfig(usd_per_hour="0.25", network=docker_network))
        (offer,) = await provider.offers(Resources())
        await provider.close()
        assert (offer.provider, offer.label, offer.usd_per_hour_micro, offer.declared) == (
            "docker",
            "local Docker",
            250_000,
            True,
        )

    async def test_none_when_the_machine_is_too_small_or_has_no_gpu(self, bench, engine):
        assert await bench.provider.offers(Resources(memory_mib=2**30)) == ()
        assert await bench.provider.offers(Resources(cpus=10_000)) == ()
        if "nvidia" not in engine.info()["Runtimes"]:
            assert await bench.provider.offers(Resources(gpus=1)) == ()

    async def test_what_it_never_has_is_said_and_what_it_has_is_not(self, bench):
        assert "10000 CPUs (it has" in await bench.provider.why_never(Resources(cpus=10_000))
        assert await bench.provider.why_never(Resources()) is None


class TestDisk:
    async def test_the_list_tells_what_a_container_wrote_and_what_it_may(self, bench, launches, base_images):
        """Into its own layer and into a volume of the image; memory is no disk."""
        fill = (
            "head -c 30m /dev/zero > /gpurun/tmp/x; head -c 20m /dev/zero > /data/y; head -c 9m /dev/zero > /dev/shm/z;"
            "truncate -s 50m /gpurun/tmp/hole; echo done; exec sleep 60"
        )
        ref = await bench.up(launches(base_images.volume, fill, needs=Resources(memory_mib=256, disk_mib=4096)))
        while b"done" not in await bench.provider.logs(ref, max_bytes=100):
            await asyncio.sleep(0.02)
        disk = await _measured(bench, ref)
        await bench.provider.destroy(ref)
        assert disk.limit_mib == 4096
        in_volume = 20 if os.geteuid() == 0 else 0  # the folder is the engine's
        assert disk.used_mib == 80 + in_volume

    async def test_a_job_that_says_nothing_gets_a_share_of_what_is_free(self, bench, launches, base_images, engine):
        ref = await bench.up(launches(base_images.busybox, "exec sleep 60"))
        disk = await _measured(bench, ref)
        await bench.provider.destroy(ref)
        free = shutil.disk_usage(engine.info()["DockerRootDir"]).free >> 20
        assert disk.limit_mib == pytest.approx(0.45 * free, rel=0.1)  # two runs share 90 %
        assert disk.used_mib == 0

    async def test_what_is_not_free_is_not_offered_now_and_more_than_there_is_never(self, bench, engine):
        disk = shutil.disk_usage(engine.info()["DockerRootDir"])
        free_mib, total_mib = disk.free >> 20, disk.total >> 20
        assert await bench.provider.offers(Resources(disk_mib=total_mib + 1)) == ()
        assert "of disk (it has" in await bench.provider.why_never(Resources(disk_mib=total_mib + 1))
        with pytest.raises(ProviderRefused, match="must stay free") as caught:
            await bench.provider.offers(Resources(disk_mib=min(free_mib + 1024, total_mib)))
        assert caught.value.kind == "capacity"


async def _measured(bench, ref):
    """What the list tells once the engine has answered."""
    while True:
        (disk,) = [one.disk for one in await bench.provider.list_owned("gpurun-doctest0-") if one.ref == ref]
        if disk is not None:
            return disk
