"""The server is killed every 2.5 s while jobs go through it: each is told once, runs once, and loses no byte."""

from __future__ import annotations

import anyio
import pytest

from tests.world import World, open_world
from tests.world.deaths import Deaths
from tests.world.laws import assert_log
from tests.world.nursery import Nursery
from tests.world.rows import let_leases_pass, select, undone
from tests.world.shifted import ShiftedClock, shift_postgres

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

LIVES_S = 2.5
MOST_KILLS = 24
SAYS = r"for i in $(seq %d); do printf 'line %%s \351\r' $i; echo; sleep 0.05; done"
TALKS_LINES = 220
"""More than ten seconds: whatever the machine, several servers die meanwhile."""
JOBS = {
    "talks": SAYS % TALKS_LINES,
    "fails": f"{SAYS % 60}; exit 3",
    "quick": "echo went",
    "stays": "echo here; sleep 600",
}
VERDICTS = {"talks": "passed", "fails": "failed", "quick": "passed", "stays": "cancelled"}


def said(lines: int) -> bytes:
    return b"".join(b"line %d \xe9\r\n" % number for number in range(1, lines + 1))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request):
    """Empty for SQLite."""
    if request.param == "sqlite":
        return ""
    url = request.getfixturevalue("postgres_url")
    shift_postgres(url)
    return url


async def test_killed_every_2_5_seconds(tmp_path, base_images, database_url):
    clock = ShiftedClock(tmp_path / "shift")
    with Nursery() as nursery:
        async with open_world(
            tmp_path,
            image=base_images.python,
            database_url=database_url,
            clock=clock,
            nursery=nursery,
            docker_max_runs="8",
            environment={"SHIFTED_CLOCK": str(tmp_path / "shift")},
        ) as world:
            time = Deaths(world, clock, "", "")
            # a death between create and start costs an attempt, and here there are many
            world.jobs(**{job: {"run": run, "retry": {"attempts": 5}} for job, run in JOBS.items()})
            for job in JOBS:
                world.comment(f"/gpurun {job}")
            kills = await killed_until_all_ended(world, time)
            record = await time.assert_laws()
            for job, verdict in VERDICTS.items():
                assert verdict in await world.expect_comment(f"gpurun {job}: ")
            assert {run["job"]: run["verdict"] for run in record.runs} == VERDICTS
            assert len(record.commands) == len(JOBS) + 1
            assert_log(world, "talks", said(TALKS_LINES))
            assert_log(world, "fails", said(60))
            assert_log(world, "quick", b"went\n")
            assert kills >= 3


async def killed_until_all_ended(world: World, time: Deaths) -> int:
    """How often."""
    asked = False
    async with time.hurried(0.6):  # 4 s a second: waits after a create that nobody knows of are not sat out
        for kills in range(MOST_KILLS):
            await anyio.sleep(LIVES_S)
            if asked and not undone(world.database).keys() & {"deliveries", "runs"}:
                return kills
            world.bot.kill()
            let_leases_pass(world.database)
            await world.bot.start()
            if not asked and says_here(world):  # right after a start: GitHub delivers once
                asked = True
                world.comment("/gpurun cancel stays")
    raise AssertionError(f"killed {MOST_KILLS} times and not over\n{world.story()}")


def says_here(world: World) -> bool:
    """The job that is to be cancelled runs."""
    runs = "SELECT 1 FROM attempt JOIN run ON run.id = run_id WHERE run.job = 'stays' AND attempt.phase = 'running'"
    return bool(select(world.database, runs))
