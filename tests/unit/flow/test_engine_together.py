"""Three workers of three processes on one PostgreSQL step at the same moments and die at random: the laws hold."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from gpurun.adapters.store import PostgresStore
from gpurun.domain.run import RunState, Verdict
from gpurun.flow import failpoints
from gpurun.flow.failpoints import Crash
from gpurun.flow.worker import LEASE, Worker
from tests.fakes.parts import Script
from tests.fakes.world import OVER, World

pytestmark = pytest.mark.postgres

RUNS = [f"01kdrun000000000000000000{number}" for number in range(1, 6)]
SLOTS = 1
EDGES = [name for name in failpoints.names() if name.split(".")[0] in ("worker", "run", "attempt", "observe", "stray")]


@pytest.fixture
async def stores(postgres_url, clock, chance):
    """Of three processes."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(PostgresStore(postgres_url, clock=clock, chance=chance)) for _ in range(3)
        ]
    failpoints.disarm()


class Crowd:
    """Workers that share a world."""

    def __init__(self, stores, clock, chance, seed):
        self.world = World(stores[0], clock, chance, slots={"fake": SLOTS})
        self.world.cloud.observe_every_s = 5
        self.world.agents.script = Script(works_s=3)
        self.random = random.Random(seed)
        self.stores = stores
        self.workers = [self.worker(store) for store in stores]
        self.deaths = 0

    def worker(self, store):
        theirs = World(store, self.world.clock, self.world.chance, slots={"fake": SLOTS})
        theirs.cloud, theirs.git, theirs.images = self.world.cloud, self.world.git, self.world.images
        theirs.uplinks = self.world.uplinks
        return Worker(store, self.world.clock, self.world.chance, theirs.handlers(), limit=1)  # each takes one

    async def beat(self, *, deaths):
        if deaths and self.random.random() < 0.5:
            failpoints.arm(self.random.choice(EDGES), "raise")
        steps = (worker.step_until_idle() for worker in self.workers)
        for number, outcome in enumerate(await asyncio.gather(*steps, return_exceptions=True)):
            if isinstance(outcome, Crash):
                self.deaths += 1
                self.workers[number] = self.worker(self.stores[number])
            elif outcome is not None:
                raise outcome
        await self.world.agents.act()

    async def over(self):
        runs = [await self.world.the_run(run_id) for run_id in RUNS]
        attempts = [one for run_id in RUNS for one in await self.world.the_attempts(run_id)]
        return all(run.state is RunState.ENDED for run in runs) and all(one.state in OVER for one in attempts)


@pytest.mark.parametrize(("deaths", "seed"), [(False, 1), (True, 1), (True, 3)])
async def test_workers_of_several_processes_keep_the_laws(stores, clock, chance, seed, deaths):
    crowd = Crowd(stores, clock, chance, seed)
    world = crowd.world
    for run_id in RUNS:
        await world.start(run_id)
    for beat in range(3000):
        if await crowd.over():
            break
        await crowd.beat(deaths=deaths and beat < 60)
        clock.advance(seconds=1 if beat % 10 else LEASE.total_seconds() if deaths else 1)
    else:
        raise AssertionError("it does not come to an end")
    failpoints.disarm()
    assert world.cloud.most_at_once <= SLOTS
    creates = [name for call, name in world.cloud.calls if call == "create"]
    assert len(creates) == len(set(creates))  # nobody calls it twice for one attempt
    for run_id in RUNS:
        run, attempts = await world.the_run(run_id), await world.the_attempts(run_id)
        assert run.verdict is Verdict.PASSED or deaths
        assert sum(attempt.id in world.agents.user_code for attempt in attempts) <= 1
        kinds = [entry.kind for entry in await world.audit(f"run:{run_id}")]
        assert kinds.count("run_ended") == 1
        shown = await world.store.read(lambda tx, i=run_id: tx.publications(i))
        assert {check.final for check in shown} == {True}
    for _ in range(100):
        if not world.cloud.alive:
            break
        await crowd.beat(deaths=False)
        clock.advance(seconds=30)
    assert not world.cloud.alive
    assert deaths is (crowd.deaths > 0)
