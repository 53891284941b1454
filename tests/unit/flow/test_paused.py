"""A paused repository and a ceiling of one's own, with the engine."""

import pytest

from gpurun.domain.gate import Pause
from gpurun.domain.narrow import Narrow
from gpurun.domain.run import RunState, Verdict
from gpurun.flow.facts import Links, brief
from gpurun.report.waiting import why_waiting
from tests.fakes.rows import a_run
from tests.fakes.world import World


@pytest.fixture
def world(store, clock, chance):
    return World(store, clock, chance)


async def pause(world):
    def apply(tx):
        tx.pause(Pause(id="p1", repo=a_run().repo, reason="new driver", by="root", at=tx.now()))
        tx.hold_runs(a_run().repo)

    await world.store.write(apply)


async def resume(world):
    def apply(tx):
        tx.end_pause("p1", "root")
        tx.free_runs(a_run().repo)

    await world.store.write(apply)


async def test_a_held_run_starts_nothing_gives_nothing_up_and_goes_on_after(world):
    await pause(world)
    run_id = await world.start()  # made while somebody paused: it does not know
    await world.run_for(minutes=40)
    run = await world.the_run(run_id)
    assert (run.state, run.paused, run.attempts) == (RunState.PLANNING, True, 0)
    await resume(world)
    await world.run_until_over()
    await world.expect(Verdict.PASSED)


async def test_the_quarter_of_an_hour_without_an_offer_does_not_run(world):
    world.cloud.stock = 0
    run_id = await world.start()
    await world.run_for(minutes=10)
    await pause(world)
    await world.run_for(minutes=60)
    assert (await world.the_run(run_id)).state is RunState.QUEUED
    await resume(world)
    await world.run_for(minutes=10)
    assert (await world.the_run(run_id)).state is RunState.QUEUED
    await world.run_for(minutes=10)
    await world.expect(Verdict.LOST, "no_capacity")


async def test_what_has_an_instance_goes_on(world):
    await world.start()
    await world.beat()
    await pause(world)
    await world.run_until_over()
    await world.expect(Verdict.PASSED)


async def test_a_held_run_can_be_cancelled(world):
    await pause(world)
    await world.start()
    await world.beat()
    await world.cancel()
    await world.beat()
    await world.expect(Verdict.CANCELLED)


async def test_a_ceiling_below_every_price_ends_in_words_with_the_price(world):
    await world.start(narrow=Narrow(max_usd_micro=10))
    await world.run_until_over()
    run = await world.expect(Verdict.REFUSED, "budget")
    assert "`max-cost=0.00001` allows less. Write the command again with `max-cost=" in run.detail
    assert run.attempts == 0


async def test_a_ceiling_above_the_price_does_not_matter(world):
    await world.start(narrow=Narrow(max_usd_micro=100_000_000))
    await world.run_until_over()
    await world.expect(Verdict.PASSED)


async def test_who_waits_for_a_place_learns_which_limit_and_how_many_are_before(world):
    world.slots["fake"] = 1
    ids = [f"01kdrun000000000000000000{n}" for n in (1, 2, 3)]
    for run_id in ids:
        await world.start(run_id)
        world.clock.advance(seconds=1)
    await world.beat()

    def told(tx):
        return [why_waiting(brief(tx, tx.run(run_id), Links())) for run_id in ids]

    first, second, third = await world.store.read(told)
    assert first == ""
    assert "Waiting for a free place on" in second
    assert ": the only one is taken. It was the next in line at" in second
    assert "1 run was before it in line at" in third
    assert third.endswith("It does not give up: places come free as others end.")


async def test_who_waits_for_an_offer_learns_when_it_gives_up(world):
    world.cloud.stock = 0
    run_id = await world.start()
    await world.beat()
    told = await world.store.read(lambda tx: why_waiting(brief(tx, tx.run(run_id), Links())))
    assert "It gives up at 12:15:00 UTC on 2026-01-05." in told
