"""Streams of sizes that a plain run has no time for."""

from __future__ import annotations

import re

import pytest

from tests.e2e.test_streams import MB, OURS, WITHIN_S, grows_to, noise_arrives
from tests.world import open_world
from tests.world.nursery import Nursery

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


@pytest.mark.parametrize("postgres", [False, pytest.param(True, marks=pytest.mark.postgres)])
async def test_a_log_of_1_gb(request, tmp_path, base_images, nursery, postgres):
    url = request.getfixturevalue("postgres_url") if postgres else ""
    async with open_world(
        tmp_path, image=base_images.python, nursery=nursery, database_url=url, log_quota_mib="1200"
    ) as world:
        await noise_arrives(world, tmp_path, 1000 * MB)


async def test_more_than_the_engine_keeps_of_a_log_that_nobody_took(tmp_path, base_images, nursery):
    """The first and the last bytes, and how many are missing."""
    run = "echo begun; while [ ! -e go ]; do sleep 0.05; done; seq 1 8000000; touch /gpurun/tmp/done; sleep 600"
    async with open_world(tmp_path, image=base_images.python, nursery=nursery) as world:
        world.jobs(smoke={"run": run})
        world.comment("/gpurun smoke")
        await grows_to(world, len(OURS) + 1)
        (container,) = (one["Id"] for one in world.containers())
        world.bot.kill()
        world.in_container(container, "touch", "/gpurun/work/go")
        await world.until(
            lambda: "done" in world.in_container(container, "ls", "/gpurun/tmp") or None, "all", within_s=WITHIN_S
        )
        world._engine.stop(container, timeout=10)  # what the boot script's own watchdog gives
        await world.bot.start()
        await world.expect_check("gpurun / smoke", "failure", within_s=WITHIN_S)
        body = await world.expect_comment("gpurun smoke: ")
        log = (await world.page(body, "log.raw")).content
    printed = b"begun\n" + b"".join(b"%d\n" % number for number in range(1, 8_000_001))
    first, missing, last = re.fullmatch(
        rb"::gpurun:: run\n(.*?)\n?::gpurun:: (\d+) bytes of the log are missing here[^\n]*\n(.*)", log, re.DOTALL
    ).groups()
    assert printed.startswith(first)
    assert printed.endswith(last)
    assert len(first) >= MIB - 1
    assert len(last) == 9 * MIB
    assert len(printed) - len(first) - len(last) - int(missing) in (0, 1)
