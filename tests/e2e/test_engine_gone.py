"""The Docker Engine is stopped, killed or frozen in mid-run, and comes back; the bot is never restarted."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.docker.watchdogs import watchdogs
from tests.services.private_engine import private_engine_running
from tests.world import World, open_world
from tests.world.nursery import Nursery

pytestmark = pytest.mark.docker

COUNT_UNTIL_GO = "i=0; while [ ! -e go ]; do echo line $i; i=$((i+1)); sleep 0.05; done; echo went"


@pytest.fixture(scope="module")
def private_engine():
    with private_engine_running() as engine:
        yield engine


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
async def world(tmp_path, base_images, private_engine, nursery):
    settings = {"docker_host": private_engine.host, "docker_max_runs": "5"}
    async with open_world(tmp_path, image=base_images.python, nursery=nursery, **settings) as world:
        world._engine = private_engine.client()
        yield world


async def in_thread(act):
    """The stand-in for GitHub goes on meanwhile."""
    await anyio.to_thread.run_sync(act)


async def running(world: World, *jobs: str) -> dict[str, str]:
    """Ids of the containers that run them. Looked up in the database: the comment tells of progress every 15 s only."""
    world.comment("\n".join(f"/gpurun {job}" for job in jobs))
    question = "SELECT count(*) FROM attempt WHERE phase = 'running'"
    await world.until(lambda: ask(world, question) == len(jobs) or None, f"{len(jobs)} that run")
    return {job_of(world, one): one["Id"] for one in world.containers()}


def ask(world: World, question: str, *values: str) -> Any:
    """The first value of what the bot's database answers."""
    with closing(sqlite3.connect(f"file:{world.database}?mode=ro", uri=True, timeout=10)) as database:
        return database.execute(question, values).fetchone()[0]


def attempts(world: World) -> int:
    return int(ask(world, "SELECT count(*) FROM attempt"))


def containers_made(world: World, since: int) -> list[str]:
    """Names of all that the engine ever made for attempts since then; it forgets when it is started anew."""
    events = world._engine.events(decode=True, since=since, until=int(time.time()) + 1, filters={"event": "create"})
    names = [event["Actor"]["Attributes"]["name"] for event in events]
    events.close()
    return [name for name in names if name.startswith(f"gpurun-{world.install}-")]


async def log_of(world: World, body: str) -> list[str]:
    """The job's lines, as the page of the run shows them."""
    page = await world.page(body, "log.raw")
    return [line for line in page.text.splitlines() if not line.startswith("::gpurun::")]


def job_of(world: World, container: dict[str, Any]) -> str:
    """Which job an entry of the container list runs."""
    question = "SELECT run.job FROM attempt JOIN run ON run.id = attempt.run_id WHERE attempt.id = ?"
    return str(ask(world, question, container["Labels"]["gpurun.attempt"]))


async def test_an_engine_that_is_stopped_and_started(world: World, private_engine):
    """It ends its containers, as it does for an upgrade or a reboot."""
    world.jobs(long={"run": "echo ready; sleep 600"}, next={"run": "echo hi"})
    await running(world, "long")
    await in_thread(private_engine.stop)
    await in_thread(private_engine.start)
    await world.expect_check("gpurun / long", "failure")
    body = await world.expect_comment("⚠️ lost (our side)")
    assert "The instance was told to stop, and not by gpurun." in body
    await world.expect_no_container()
    world.comment("/gpurun next")
    await world.expect_check("gpurun / next", "success")
    await world.expect_comment("✅ passed")
    assert attempts(world) == 2, "user code had begun, so that nothing was tried again"


async def test_a_job_goes_on_without_its_engine_and_ends(world: World, private_engine):
    """An engine that is killed leaves its containers alone. The bot hears of the end from the agent."""
    world.jobs(
        count={"run": "while [ ! -e go ]; do sleep 0.05; done; for i in $(seq 100); do echo $i; sleep 0.02; done"}
    )
    refs = await running(world, "count")
    world.in_container(refs["count"], "touch", "/gpurun/work/go")
    await in_thread(private_engine.kill)
    await world.expect_check("gpurun / count", "success")
    body = await world.expect_comment("✅ passed")
    assert await log_of(world, body) == [str(i) for i in range(1, 101)]
    await in_thread(private_engine.start)
    await world.expect_no_container()


async def test_an_engine_that_is_killed_and_started_ends_what_ran(world: World, private_engine):
    world.jobs(long={"run": "echo ready; sleep 600"})
    await running(world, "long")
    await in_thread(private_engine.kill)
    await in_thread(private_engine.start)
    await world.expect_check("gpurun / long", "failure")
    body = await world.expect_comment("⚠️ lost (our side)")
    assert "The instance was told to stop, and not by gpurun." in body
    assert attempts(world) == 1


async def test_an_engine_that_answers_nothing_for_a_while(world: World, private_engine):
    """Nothing is taken for gone, nothing is made twice, and no line is lost."""
    since = int(time.time())
    world.jobs(first={"run": COUNT_UNTIL_GO}, second={"run": "echo hi"})
    refs = await running(world, "first")
    private_engine.freeze()
    try:
        world.comment("/gpurun second")
        await anyio.sleep(5)
        assert world.github.checks(world.repo, name="gpurun / first")[-1].conclusion is None
    finally:
        private_engine.thaw()
    await world.expect_check("gpurun / second", "success")
    await world.expect_comment("### gpurun second: ✅ passed")
    world.in_container(refs["first"], "touch", "/gpurun/work/go")
    await world.expect_check("gpurun / first", "success")
    body = await world.expect_comment("### gpurun first: ✅ passed")
    lines = await log_of(world, body)
    assert lines == [*(f"line {i}" for i in range(len(lines) - 1)), "went"]
    assert len(containers_made(world, since)) == 2


async def test_a_person_at_the_engine(world: World):
    """`docker kill`, `stop`, `rm -f`, `pause`, and a kill of the agent, all in mid-run."""
    engine, since = world._engine, int(time.time())
    kill_agent = "for p in /proc/[0-9]*; do grep -q agent.pyz $p/cmdline && kill -9 ${p#/proc/}; done; true"
    acts: dict[str, Callable[[str], object]] = {
        "killed": engine.kill,
        "stopped": engine.stop,
        "removed": lambda ref: engine.remove_container(ref, force=True),
        "agent": lambda ref: world.in_container(ref, "sh", "-c", kill_agent),
        "paused": engine.pause,
    }
    by_a_person = "The agent in it was killed (exit code 137), by the job, by a person, or because memory ran out."
    sentences = {
        "killed": by_a_person,
        "stopped": "The instance was told to stop, and not by gpurun.",
        "removed": "The instance was removed while the job ran, and not by gpurun.",
        "agent": by_a_person,
    }
    world.jobs(**{job: {"run": COUNT_UNTIL_GO} for job in acts})
    refs = await running(world, *acts)
    assert len(watchdogs(Path(world.database).parent / "watchdog")) == 1
    for job, act in acts.items():
        await in_thread(partial(act, refs[job]))
    for job, sentence in sentences.items():
        await world.expect_check(f"gpurun / {job}", "failure")
        assert sentence in await world.expect_comment(f"### gpurun {job}: ⚠️ lost (our side)")
    assert world.github.checks(world.repo, name="gpurun / paused")[-1].conclusion is None
    engine.unpause(refs["paused"])
    world.in_container(refs["paused"], "touch", "/gpurun/work/go")
    await world.expect_check("gpurun / paused", "success")
    await world.expect_comment("### gpurun paused: ✅ passed")
    assert len(containers_made(world, since)) == len(acts), "nothing was tried again"
