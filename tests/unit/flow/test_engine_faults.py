"""Lost answers, lying lists, dead workers: at most one instance of a run is alive, none in the end, and one verdict."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gpurun.domain.offer import InstanceState, Owned
from gpurun.domain.run import AttemptState, RunState, StrayState, Verdict
from gpurun.flow import failpoints
from gpurun.flow.observe import Observer
from gpurun.ports.store import Kind, Lease
from tests.fakes.parts import Script
from tests.fakes.world import World

NEVER_CLAIMS = Script(claims=False)


@pytest.fixture
def world(store, clock, chance):
    yield World(store, clock, chance)
    failpoints.disarm()


@pytest.fixture
def store_url(request, tmp_path):
    """SQLite unless a test asks for both."""
    return str(tmp_path / "gpurun.sqlite")


async def test_a_lost_answer_to_create_is_looked_for_and_adopted(world):
    world.cloud.fail("create", "lost")
    await world.start()
    await world.run_until_over()
    run = await world.expect(Verdict.PASSED)
    assert (run.attempts, len(world.cloud.book)) == (1, 1)


async def test_a_create_that_made_nothing_ends_unsure_and_another_attempt_runs(world):
    world.cloud.observe_every_s = 120
    world.cloud.fail("create", "lost_unmade")
    await world.start()
    await world.run_for(minutes=2)
    first, *_ = await world.the_attempts()
    assert first.state is AttemptState.UNSURE
    await world.run_for(minutes=5)
    assert (await world.the_run()).verdict is Verdict.PASSED
    await world.run_for(minutes=35)
    run = await world.expect(Verdict.PASSED)
    assert run.attempts == 2


async def test_a_late_ghost_of_an_unsure_attempt_runs_nothing_and_is_destroyed(world):
    world.cloud.list_lag_s = 10 * 60
    world.cloud.boots_after_s = 2 * 60
    world.cloud.fail("create", "lost")
    await world.start()
    await world.run_for(seconds=90)
    first, *_ = await world.the_attempts()
    assert first.state is AttemptState.UNSURE
    world.cloud.list_lag_s = 0
    await world.run_until_over()
    await world.expect(Verdict.PASSED)
    first, second = await world.the_attempts()
    assert (first.state, first.claimed_at) == (AttemptState.GONE, None)
    assert world.agents.user_code == [second.id]


async def test_a_refused_create_is_tried_once_more_then_no_capacity(world):
    world.cloud.fail("create", "capacity", "capacity")
    await world.start()
    await world.run_for(minutes=1)
    run = await world.expect(Verdict.LOST, "no_capacity")
    assert run.attempts == 2
    assert not world.cloud.book


async def test_an_id_inside_an_error_is_destroyed(world):
    world.cloud.fail("create", "id_in_error")
    await world.start()
    await world.run_until_over()
    await world.run_for(minutes=1)
    run = await world.expect(Verdict.PASSED)
    assert run.attempts == 2
    assert world.cloud.book[0].gone_at is not None
    (stray,) = await world.store.read(lambda tx: tx.strays("fake"))
    assert stray.state is StrayState.GONE


async def test_an_answer_that_arrives_after_the_lease_is_kept_as_a_fact(world):
    """The worker froze in create; a successor looks; then the answer comes."""

    def freeze():
        world.clock.advance(seconds=100)

    failpoints.arm("attempt.create.after", freeze)
    await world.start()
    await world.run_until_over()
    run = await world.expect(Verdict.PASSED)
    assert (run.attempts, len(world.cloud.book)) == (1, 1)


async def test_what_create_made_for_an_attempt_that_was_given_up_is_destroyed_at_once(world):
    """The worker froze in create until nobody believed in the instance any more."""
    world.cloud.boots_after_s = world.cloud.list_lag_s = 1e6
    create = world.cloud.create

    async def frozen(launch):
        world.cloud.create = create
        ref = await create(launch)
        world.restart()
        world.clock.advance(seconds=100)
        await world.run_for(minutes=45)
        return ref

    world.cloud.create = frozen
    await world.start()
    await world.worker.step_until_idle()
    await world.run_for(seconds=10)
    first, *_ = await world.the_attempts()
    assert (first.state, first.instance_ref) == (AttemptState.VOID, None)
    assert not world.cloud.alive
    assert "stray_found" in [entry.kind for entry in await world.audit(f"attempt:{first.id}")]


@pytest.mark.parametrize("edge", ["attempt.send_create.after", "attempt.create.before"])
async def test_who_lost_the_lease_before_create_does_not_call_it(world, edge):
    world.cloud.observe_every_s = 120
    failpoints.arm(edge, lambda: world.clock.advance(seconds=100))
    await world.start()
    await world.run_for(minutes=4)
    assert [call for call, _ in world.cloud.calls if call == "create"] == ["create"]  # of attempt 2
    await world.run_until_over()
    run = await world.expect(Verdict.PASSED)
    assert run.attempts == 2


async def test_destroy_is_repeated_until_it_is_confirmed(world):
    world.cloud.fail("destroy", "not_yet", "unavailable", "auth", "not_yet")
    await world.start()
    await world.run_for(seconds=12, beats=12)
    assert (await world.the_run()).verdict is Verdict.PASSED  # the verdict does not wait for it
    assert world.cloud.alive
    await world.run_for(seconds=30)
    await world.expect(Verdict.PASSED)


async def test_an_end_that_is_never_confirmed_is_told_and_pursued(world):
    world.cloud.observe_every_s = 120
    world.cloud.break_down("destroy", "not_yet")
    await world.start()
    await world.run_for(minutes=40)
    (attempt,) = await world.the_attempts()
    assert attempt.unconfirmed_at is not None
    assert [e.kind for e in await world.audit(f"attempt:{attempt.id}")].count("attempt_end_unconfirmed") == 1
    before = len(world.cloud.calls)
    await world.run_for(minutes=20)
    assert 3 <= sum(call == "destroy" for call, _ in world.cloud.calls[before:]) <= 5
    world.cloud.repair()
    await world.run_for(minutes=6)
    await world.expect(Verdict.PASSED)


# the observer


async def test_a_list_that_is_refused_means_nothing_is_gone_and_nothing_is_created(world):
    world.agents.script = Script(works_s=60)
    await world.start()
    await world.run_for(seconds=5)
    world.cloud.break_down("list", "auth")
    await world.run_for(seconds=20)  # the next look is after this
    await world.start("01kdrun0000000000000000002")
    await world.run_for(minutes=3)
    assert (await world.the_run()).verdict is Verdict.PASSED
    waiting = await world.the_run("01kdrun0000000000000000002")
    assert (waiting.state, waiting.attempts) == (RunState.QUEUED, 0)
    assert "cannot be listed" in waiting.detail
    account = await world.store.read(lambda tx: tx.account("fake"))
    assert account.broken_since is not None
    world.cloud.repair()
    await world.run_until_over()
    assert (await world.the_run("01kdrun0000000000000000002")).verdict is Verdict.PASSED


async def test_a_live_attempt_survives_a_provider_that_cannot_be_listed(world):
    world.cloud.observe_every_s = 120
    world.agents.script = Script(works_s=20 * 60)
    await world.start()
    await world.run_for(seconds=30)
    world.cloud.break_down("list", "unavailable")
    await world.run_for(minutes=15)
    assert (await world.the_run()).state is RunState.ACTIVE
    await world.run_for(minutes=10)
    await world.expect(Verdict.PASSED)


async def test_a_list_that_lags_is_no_proof_of_absence(world):
    world.cloud.list_lag_s = 150
    world.agents.script = Script(works_s=200)
    await world.start()
    await world.run_until_over()
    run = await world.expect(Verdict.PASSED)
    assert run.attempts == 1


async def test_a_stray_is_destroyed_after_two_sightings_two_minutes_apart(world):
    await world.start()
    await world.run_for(seconds=30)
    ours = world.cloud.book[0].launch
    ghost = world.cloud.make(ours)  # the host came back with it
    await world.run_for(minutes=2)  # the idle observer looks every two minutes
    assert ghost.alive
    (stray,) = await world.store.read(lambda tx: tx.strays("fake"))
    assert stray.state is StrayState.SEEN
    seen_at = stray.first_seen
    await world.run_for(minutes=3)
    assert ghost.gone_at is not None
    assert 120 <= (ghost.gone_at - seen_at).total_seconds() <= 130
    kinds = [entry.kind for entry in await world.audit("provider:fake")]
    assert kinds == ["stray_seen", "stray_destroying", "stray_gone"]


async def test_a_stray_is_destroyed_until_it_is_gone(world):
    await world.start()
    await world.run_for(seconds=30)
    ghost = world.cloud.make(world.cloud.book[0].launch)
    world.cloud.fail("describe", "unavailable")
    world.cloud.break_down("destroy", "not_yet")
    await world.run_for(minutes=14)
    assert ghost.alive
    world.cloud.repair()
    await world.run_for(minutes=6)
    assert not ghost.alive


@pytest.mark.parametrize(("asked_s", "strays"), [(0, 0), (1, 1)])
async def test_a_list_from_before_the_confirmed_end_makes_no_stray(world, asked_s, strays):
    await world.start()
    await world.run_until_over()
    (attempt,) = await world.the_attempts()
    seen = Owned(ref=attempt.instance_ref, name=attempt.name, state=InstanceState.RUNNING)
    asked_at = attempt.gone_at + timedelta(seconds=asked_s)
    lease = Lease(kind=Kind.PROVIDER_ACCOUNT, id="fake", token="none", tries=0)
    observer = Observer(world.services())
    await world.store.write(lambda tx: observer._apply(tx, lease, (seen,), asked_at))
    assert len(await world.store.read(lambda tx: tx.strays("fake"))) == strays


async def test_strangers_are_left_alone(world):
    await world.start()
    await world.run_for(seconds=30)
    stranger = world.cloud.make(replace(world.cloud.book[0].launch, name="gpurun-zzzzzzzz-" + "0" * 26 + "-abc"))
    await world.run_for(minutes=20)
    assert stranger.alive
