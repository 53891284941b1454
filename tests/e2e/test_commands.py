"""Commands that start no job by themselves, on a real server: what goes on, its log, again, pause and stop."""

from __future__ import annotations

import pytest

from tests.world import World, open_world
from tests.world.laws import assert_laws

pytestmark = [pytest.mark.docker, pytest.mark.timeout(200)]


@pytest.fixture
async def world(tmp_path, base_images):
    async with open_world(tmp_path, image=base_images.python) as world:
        yield world


async def test_list_status_logs_and_retry(world: World):
    world.jobs(smoke={"run": "echo one; echo two; exit 3"}, full={"run": "sleep 600"})
    world.comment("/gpurun smoke")
    await world.expect_check("gpurun / smoke", "failure")
    await world.expect_comment("gpurun smoke: ❌ failed")
    world.comment("/gpurun logs smoke", by="bob")
    assert "one\ntwo" in await world.expect_comment("```")
    world.comment("/gpurun full")
    await world.expect_container()
    world.comment("/gpurun list", by="bob")
    listed = await world.expect_comment("| job | GPU |")
    assert "`/gpurun full`" in listed
    world.comment("/gpurun status", by="bob")
    assert "full: " in await world.expect_comment("What goes on for this pull request")
    world.comment("/gpurun retry")
    checks = lambda: [one.conclusion for one in world.github.checks(world.repo, name="gpurun / smoke")]  # noqa: E731
    await world.until(lambda: True if checks() == ["failure", "failure"] else None, "a second run of the job")
    await world.expect_comment("gpurun smoke: ❌ failed")
    world.repo.grant("erin", "admin")
    world.comment("/gpurun stop-all", by="erin")
    await world.expect_comment("told to stop")
    await world.expect_check("gpurun / full", "cancelled")
    await world.expect_comment("gpurun full: 🚫 cancelled")
    await assert_laws(world)


async def test_a_pause_holds_what_is_to_come(world: World):
    world.jobs(smoke={"run": "echo went"})
    world.repo.grant("erin", "admin")
    world.comment('/gpurun pause reason="new driver"', by="alice")
    await world.expect_comment("is for people with the role admin")
    world.comment('/gpurun pause reason="new driver"', by="erin")
    await world.expect_comment("Nothing starts in this repository from now on")
    world.comment("/gpurun smoke")
    assert "new driver" in await world.expect_comment("Nothing was started.")
    assert not world.made_containers()
    world.comment("/gpurun resume", by="erin")
    await world.expect_comment("The pause by `erin` has ended")
    world.comment("/gpurun smoke")
    await world.expect_check("gpurun / smoke", "success")
    await world.expect_comment("✅ passed")
    await assert_laws(world)
