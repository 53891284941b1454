"""What `gpurun run` asks for is on record."""

from __future__ import annotations

import pytest

from gpurun.domain.run import AttemptState, Verdict
from gpurun.flow.request import request_cancel, request_end
from tests.fakes.parts import Script
from tests.fakes.world import World


@pytest.fixture
def store_url(tmp_path):
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
async def run_id(store, clock, chance, world):
    world.agents.script = Script(works_s=600, obeys=False)
    run_id = await world.start()
    await world.run_for(seconds=20)
    (attempt,) = await world.the_attempts()
    assert attempt.state is AttemptState.LIVE
    return run_id


@pytest.fixture
def world(store, clock, chance):
    return World(store, clock, chance)


async def test_a_cancel_leaves_the_job_time_to_end(world, run_id):
    for _ in range(2):
        await request_cancel(world.store, run_id, "alice")
    await world.run_for(seconds=20)
    assert world.cloud.alive
    await world.run_until_over()
    await world.expect(Verdict.CANCELLED)
    asked = [entry for entry in await world.audit(f"run:{run_id}") if entry.kind == "run_cancel_asked"]
    assert [(entry.actor, entry.data) for entry in asked] == [("cli", {"by": "alice"})]
    (attempt,) = await world.the_attempts()
    assert "attempt_stop_asked" in [entry.kind for entry in await world.audit(f"attempt:{attempt.id}")]


async def test_an_end_does_not(world, run_id):
    await request_cancel(world.store, run_id, "alice")
    await request_end(world.store, run_id, "alice")
    await world.run_for(seconds=1)
    await world.expect(Verdict.CANCELLED)
    (attempt,) = await world.the_attempts()
    set_by = [entry.actor for entry in await world.audit(f"attempt:{attempt.id}") if entry.kind == "attempt_result_set"]
    assert set_by == ["cli"]
