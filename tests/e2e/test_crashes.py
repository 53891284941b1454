"""The bot kills itself around its side effects, again and again; the story still has one right end."""

from __future__ import annotations

import pytest

from tests.world import World, open_world
from tests.world.bot import dying_at

pytestmark = pytest.mark.docker

WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.05; done"


@pytest.fixture
async def world(tmp_path, base_images):
    """On SQLite, whose next process knows at once that the leases of the last one are void."""
    async with open_world(tmp_path, image=base_images.python) as world:
        yield world


async def test_a_bot_that_dies_on_every_stretch_of_the_way(world: World):
    """One run, five deaths: after the command, planning, create, and on both sides of destroy."""
    world.jobs(smoke={"run": f"{WAIT_FOR_GO}; echo went"})
    await restart_dying_at(world, "intake.commit.after")
    world.comment("/gpurun smoke")
    await world.bot.death()
    await world.bot.start_and_die("run.git_fetch.after")
    await world.bot.start_and_die("attempt.create.after")
    container = await world.expect_container()
    world.in_container(container, "touch", "/gpurun/work/go")  # the job comes to its end without a bot
    await world.bot.start_and_die("attempt.destroy.before")
    assert await world.expect_container() == container
    await world.bot.start_and_die("attempt.destroy.after")
    assert world.containers() == []
    await world.bot.start()
    await world.expect_check("gpurun / smoke", "success")
    body = await world.expect_comment("✅ passed")
    assert "went" in body
    await expect_one_of_each(world, ["gpurun / smoke"])


async def test_a_bot_that_dies_around_what_it_shows(tmp_path, base_images):
    """A comment, a check and a word that one will be posted, of which no row tells the end."""
    deaths = {
        "one": "publish.create_comment.after",
        "two": "publish.create_check.after",
        "three": "publish.announce.after",
    }
    async with open_world(tmp_path, image=base_images.python, docker_max_runs="1") as world:
        world.jobs(first={"run": WAIT_FOR_GO}, **{job: {"run": f"echo {job}"} for job in deaths})
        world.comment("/gpurun first")  # takes the only place, so that no death happens inside create
        container = await world.expect_container()
        await world.expect_check("gpurun / first", None)
        await world.expect_comment("To stop it, write `/gpurun cancel first`.")
        for job, failpoint in deaths.items():
            await restart_dying_at(world, failpoint)
            world.comment(f"/gpurun {job}")
            await world.bot.death()
        world.in_container(container, "touch", "/gpurun/work/go")
        await world.bot.start()
        for job in ("first", *deaths):
            await world.expect_check(f"gpurun / {job}", "success")
            assert "✅ passed" in await world.expect_comment(f"To run it again, write `/gpurun {job}`.")
        await expect_one_of_each(world, [f"gpurun / {job}" for job in ("first", "one", "three", "two")])


async def restart_dying_at(world: World, failpoint: str) -> None:
    """It answers, and the next pass is its last."""
    await world.bot.stop()
    await world.bot.start(**dying_at(failpoint))


async def expect_one_of_each(world: World, checks: list[str]) -> None:
    await world.expect_no_container()
    assert sorted(check.name for check in world.github.checks(world.repo)) == checks
    assert len(world.bot_comments()) == len(checks)
