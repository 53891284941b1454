"""Two `gpurun serve` on one PostgreSQL: what one began, the other one finishes, also when the first one comes back."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest

from tests.world import World, open_world
from tests.world.bot import dying_at
from tests.world.deaths import Deaths
from tests.world.laws import Record, assert_laws, assert_log
from tests.world.nursery import Nursery
from tests.world.pair import LONG_S, Pair
from tests.world.rows import leased, select, undone
from tests.world.shifted import ShiftedClock, shift_postgres

pytestmark = [pytest.mark.docker, pytest.mark.postgres, pytest.mark.timeout(300)]

COMMENT = "/repos/{}/{}/issues/comments/{}"


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
async def pair(tmp_path, base_images, nursery, postgres_url):
    """No bot is running yet."""
    async with open_pair(tmp_path, base_images.python, nursery, postgres_url) as pair:
        yield pair


@pytest.fixture
async def pair_of_single_workers(tmp_path, base_images, nursery, postgres_url):
    """Each does one step at a time: what is halted at one edge is in the middle of no other call."""
    async with open_pair(tmp_path, base_images.python, nursery, postgres_url, workers=1) as pair:
        yield pair


@asynccontextmanager
async def open_pair(folder, image, nursery, url, *, really=False, workers=16):
    """With a clock of its own that the test can shift; the world's laws hold when it is left."""
    shift_postgres(url)
    clock = ShiftedClock(folder / "shift")
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(
            open_world(
                folder,
                image=image,
                database_url=url,
                clock=clock,
                nursery=nursery,
                docker_max_runs="5",
                workers=str(workers),
                environment={"SHIFTED_CLOCK": str(folder / "shift")},
            )
        )
        await world.bot.stop()
        pair = Pair(world, Deaths(world, clock, "postgres", ""), really=really)
        stack.push_async_callback(pair.close)
        yield pair
        await all_over(pair)
        await world.expect_comment("✅ passed")
        await assert_laws(world)


async def all_over(pair: Pair) -> None:
    """Nothing is left to be done, not even for an instance that could show up within half an hour."""
    unended = lambda: undone(pair.world.database).keys() & {"deliveries", "runs"}  # noqa: E731
    async with pair.time.hurried(1):  # an agent has two minutes to speak
        await pair.world.until(lambda: None if unended() else True, "all runs ended")
    async with pair.time.hurried(60):
        await pair.world.until(lambda: None if undone(pair.world.database) else True, "nothing undone")


def smoke(world: World) -> None:
    world.jobs(smoke={"run": "echo went"})


def ask(world: World):
    return lambda: world.comment("/gpurun smoke")


def attempts(world: World) -> list[tuple[str, str]]:
    """State and result, oldest first."""
    rows = select(world.database, "SELECT state, result FROM attempt ORDER BY created_at, id")
    return [(row["state"], json.loads(row["result"] or '{"kind": ""}')["kind"]) for row in rows]


async def passes(world: World) -> None:
    """The twin has brought the run to its end and shown it."""
    await world.expect_check("gpurun / smoke", "success")
    await world.expect_comment("✅ passed")
    await world.expect_no_container()


async def second_attempt(pair: Pair) -> None:
    """The twin has given the first one up, and makes another."""
    made = "SELECT 1 FROM attempt WHERE number = 2 AND create_sent_at IS NOT NULL"
    async with pair.time.hurried(6):
        await pair.world.until(lambda: select(pair.world.database, made) or None, "another attempt")


async def test_a_process_that_dies_for_good_is_replaced(tmp_path, base_images, postgres_url, nursery):
    """The second one takes over the rows, and the socket through which the agent speaks."""
    async with open_world(tmp_path, image=base_images.python, database_url=postgres_url, nursery=nursery) as world:
        run = "echo before; while [ ! -e go ]; do sleep 0.05; done; for i in $(seq 200); do echo line $i; done"
        world.jobs(smoke={"run": run})
        world.comment("/gpurun smoke")
        container = await world.expect_container()
        await world.expect_running()
        twin = world.bot.twin()
        await twin.start()
        try:
            with anyio.fail_after(20):
                while leased(postgres_url):  # a row in the middle of a step would wait for the end of its lease, 75 s
                    await anyio.sleep(0.01)
            world.bot.kill()
            world.in_container(container, "touch", "/gpurun/work/go")
            await world.expect_check("gpurun / smoke", "success")
            body = await world.expect_comment("✅ passed")
            await world.expect_no_container()
        finally:
            assert await twin.stop() == 0
        assert "line 200" in body
        assert len(world.bot_comments()) == 1


@pytest.mark.parametrize("failpoint", ["attempt.create.after", "attempt.destroy.before", "publish.announce.after"])
async def test_who_dies_for_good_at_a_bad_place_beside_a_living_one(pair: Pair, failpoint: str):
    """Both are at work when it happens; who gets there first is open, so runs are asked for until it is the one."""
    world = pair.world
    smoke(world)
    await world.bot.start(**dying_at(failpoint))
    await pair.twin.start()
    for runs in range(1, 9):
        world.comment("/gpurun smoke")
        over = f"SELECT 1 FROM run WHERE state = 'ended' HAVING count(*) = {runs}"
        await world.until(
            lambda over=over: True if select(world.database, over) or not world.bot.alive else None, "an end"
        )
        if not world.bot.alive:
            break
    assert await world.bot.death() == failpoint
    world.github.hook_url = f"{pair.twin.url}/github"
    pair.time.pass_time(LONG_S)
    await all_over(pair)
    assert {check.conclusion for check in world.github.checks(world.repo)} == {"success"}


# frozen for longer than a lease, taken over, and thawed


async def test_thawed_before_create_it_does_not_call_it(pair: Pair):
    smoke(pair.world)
    await pair.halted_at("attempt.create.before", for_s=LONG_S, after=ask(pair.world))
    await second_attempt(pair)
    await passes(pair.world)
    pair.thaw()
    await all_over(pair)
    assert attempts(pair.world) == [("void", "lost"), ("gone", "passed")]
    assert len(pair.world.made_containers()) == 1


async def test_thawed_in_create_what_it_makes_for_nobody_is_destroyed(pair: Pair, tmp_path):
    """Its own clock stood still as well, as that of a virtual machine does that is paused: it believes in its lease."""
    still = tmp_path / "still"
    ShiftedClock(still)
    smoke(pair.world)
    await pair.halted_at("attempt.create.before", for_s=LONG_S, after=ask(pair.world), SHIFTED_CLOCK=str(still))
    await second_attempt(pair)
    await passes(pair.world)
    pair.thaw()
    await pair.world.until(lambda: True if len(pair.world.made_containers()) == 2 else None, "a ghost")
    await pair.world.expect_no_container()
    await all_over(pair)  # the row learns of it after the engine
    assert attempts(pair.world) == [("gone", "lost"), ("gone", "passed")]
    assert_log(pair.world, "smoke", b"went\n")


async def test_thawed_after_create_it_finds_its_instance_adopted(pair: Pair):
    smoke(pair.world)
    await pair.halted_at("attempt.create.after", for_s=LONG_S, after=ask(pair.world))
    adopted = "SELECT 1 FROM attempt WHERE state = 'booting' AND instance_ref IS NOT NULL"
    async with pair.time.hurried(1):
        await pair.world.until(lambda: select(pair.world.database, adopted) or None, "an instance that is adopted")
    pair.thaw()
    await passes(pair.world)
    await all_over(pair)
    assert attempts(pair.world) == [("gone", "passed")]
    assert len(pair.world.made_containers()) == 1
    assert select(pair.world.database, "SELECT 1 FROM stray") == []


async def test_thawed_in_destroy_it_finds_the_end_confirmed(pair: Pair):
    smoke(pair.world)
    await pair.halted_at("attempt.destroy.before", for_s=LONG_S, after=ask(pair.world))
    await passes(pair.world)
    pair.thaw()
    await all_over(pair)
    assert attempts(pair.world) == [("gone", "passed")]


@pytest.mark.parametrize("failpoint", ["publish.create_check.before", "publish.create_comment.before"])
async def test_thawed_around_a_post_it_makes_no_second_one(pair_of_single_workers: Pair, failpoint: str):
    pair = pair_of_single_workers
    world = pair.world
    world.jobs(smoke={"run": "echo went"}, first={"run": "true"})
    await pair.twin.start()
    world.github.hook_url = f"{pair.twin.url}/github"
    world.comment("/gpurun first")  # has the commit fetched: a process that is halted in a fetch holds the mirror
    await world.expect_check("gpurun / first", "success")
    await world.expect_comment("gpurun first: ✅ passed")
    await world.until(lambda: None if undone(world.database) else True, "nothing undone")
    await pair.twin.stop()
    world.github.hook_url = f"{world.bot.url}/github"
    await pair.halted_at(failpoint, for_s=LONG_S, after=ask(world))
    await world.expect_check("gpurun / smoke", "success")
    await world.expect_comment("gpurun smoke: ✅ passed")
    pair.thaw()
    await all_over(pair)
    assert attempts(world) == [("gone", "passed")] * 2
    assert len(world.bot_comments()) == 2


async def test_thawed_with_an_old_list_it_finds_no_strays(pair: Pair):
    """The list has the instance of a run that ended since."""
    world = pair.world
    world.jobs(smoke={"run": "while [ ! -e go ]; do sleep 0.05; done"})
    await pair.twin.start()
    world.github.hook_url = f"{pair.twin.url}/github"
    world.comment("/gpurun smoke")
    container = await world.expect_container()
    await world.expect_running()
    await pair.halted_at("observe.list.after", for_s=0)
    world.in_container(container, "touch", "/gpurun/work/go")
    await passes(world)
    pair.time.pass_time(LONG_S)
    pair.thaw()
    seen = "SELECT 1 FROM provider_account WHERE lease_token IS NULL AND list_ok_at IS NOT NULL"
    await world.until(lambda: select(world.database, seen) or None, "a list")
    assert select(world.database, "SELECT 1 FROM stray") == []


async def test_thawed_at_a_stray_that_others_have_destroyed(pair: Pair):
    world = pair.world
    smoke(world)
    stray = world.make_stray()
    async with pair.time.hurried(20):
        await pair.halted_at("stray.destroy.before", for_s=LONG_S)
        await world.expect_no_container()
    pair.thaw()
    await all_over(pair)
    strays = select(world.database, "SELECT ref, state FROM stray")
    assert [(row["ref"], row["state"]) for row in strays] == [(stray, "gone")]
    ask(world)()
    await passes(world)


async def test_thawed_at_the_renewal_of_leases_that_are_others_now(pair: Pair):
    world = pair.world
    smoke(world)
    world.github.slow("GET", COMMENT, seconds=3600)
    async with pair.time.hurried(5):
        await pair.halted_at("worker.renew.before", for_s=LONG_S, after=ask(world))
    await passes(world)
    pair.thaw()
    await all_over(pair)
    assert attempts(world) == [("gone", "passed")]
    pair.time.pass_time(3600)  # GitHub's answer that it still waits for


# frozen for less than a lease


@pytest.mark.parametrize(
    ("failpoint", "seconds"),
    [("attempt.create.before", 25), ("publish.announce.after", 12)],
)
async def test_nobody_takes_over_from_who_is_back_in_time(pair: Pair, failpoint: str, seconds: int):
    world = pair.world
    smoke(world)
    await pair.halted_at(failpoint, for_s=seconds, after=ask(world))
    assert leased(world.database) > 0
    pair.thaw()
    await passes(world)
    await all_over(pair)
    assert attempts(world) == [("gone", "passed")]
    (attempt,) = Record.of(world.database).attempts
    kinds = Record.of(world.database).entries(f"attempt:{attempt['id']}")
    assert "attempt_looking" not in kinds
    assert len(world.bot_comments()) == 1
