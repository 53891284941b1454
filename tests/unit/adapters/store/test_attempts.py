from dataclasses import replace
from datetime import timedelta

import pytest

from gpurun.adapters.store.attempts import PHASE_PAUSE
from gpurun.domain.offer import DiskUse, InstanceState
from gpurun.domain.run import BUILDING, AttemptState, Phase, Result, ResultKind
from gpurun.ports.store import Kind
from tests.fakes.clock import START
from tests.unit.adapters.store.samples import a_run, an_attempt, claim, claim_one

LATER = START + timedelta(hours=1)
PASSED = Result(kind=ResultKind.PASSED, exit_code=0, reason="exit")
FULL = an_attempt(
    state=AttemptState.LIVE,
    state_since=START + timedelta(seconds=1),
    due_at=LATER,
    tries=1,
    last_error="slow",
    preparing="pulling image 43 %",
    create_sent_at=START,
    looks=2,
    claim_revoked_at=START,
    run_deadline=LATER,
    stop_asked_at=START,
    destroy_asked_at=START,
    gone_at=START,
    unconfirmed_at=START,
    instance_ref="container-1",
    claimed_at=START,
    boot_id="boot-1",
    token_sha256="t" * 64,
    phase=Phase.RUNNING,
    phase_times={"claimed": START, "running": START + timedelta(microseconds=1)},
    last_seen_at=START,
    observed=InstanceState.RUNNING,
    observed_at=START,
    observed_gone_at=START,
    exit_code=137,
    disk=DiskUse(used_mib=900, limit_mib=1024),
    result=PASSED,
    result_at=START,
    landed={"python": "3.12", "gpu": "none"},
)


async def add(store, *attempts):
    def fill(tx):
        tx.add_run(a_run(due_at=LATER))
        for attempt in attempts:
            tx.add_attempt(attempt)

    await store.write(fill)


async def read(store, id="attempt-1"):
    return await store.read(lambda tx: tx.attempt(id))


async def due(store, kind=Kind.ATTEMPT):
    return [lease.id for lease in await claim(store, kind)]


@pytest.mark.parametrize("attempt", [an_attempt(), FULL])
async def test_an_attempt_is_read_as_it_was_added(store, attempt):
    await add(store, attempt)
    assert await read(store) == attempt
    assert await read(store, "none") is None


async def test_attempts_of_a_run_come_in_order(store):
    await add(store, an_attempt("b", number=2), an_attempt("a"), an_attempt("c", run_id="run-2"))
    assert [attempt.id for attempt in await store.read(lambda tx: tx.attempts("run-1"))] == ["a", "b"]


async def test_live_attempts_are_those_whose_instance_may_exist(store):
    other = replace(an_attempt().offer, provider="vast")
    states = {state: an_attempt(state.value, number=number, state=state) for number, state in enumerate(AttemptState)}
    await add(store, *states.values(), an_attempt("elsewhere", number=90, offer=other))
    ours = await store.read(lambda tx: tx.live_attempts("docker"))
    assert {attempt.state for attempt in ours} == set(AttemptState) - {AttemptState.GONE, AttemptState.VOID}
    assert [attempt.id for attempt in await store.read(lambda tx: tx.live_attempts("vast"))] == ["elsewhere"]
    assert len(await store.read(lambda tx: tx.live_attempts())) == len(ours) + 1


async def test_saving_writes_what_the_engine_owns_and_no_fact(store):
    await add(store, an_attempt())
    lease = await claim_one(store, Kind.ATTEMPT)
    assert await store.write(lambda tx: tx.save_attempt(FULL, lease))
    facts = {
        name: getattr(an_attempt(), name)
        for name in (
            "instance_ref", "claimed_at", "boot_id", "token_sha256", "phase", "phase_times", "last_seen_at", "observed",
            "observed_at", "observed_gone_at", "exit_code", "disk", "result", "result_at", "landed",
        )
    }  # fmt: skip
    assert await read(store) == replace(FULL, **facts)


async def test_a_fact_that_arrives_during_a_step_is_kept_and_looked_at_next(store):
    await add(store, an_attempt())
    lease = await claim_one(store, Kind.ATTEMPT)
    before = await read(store)
    assert await store.write(lambda tx: tx.set_result("attempt-1", PASSED))
    assert await store.write(lambda tx: tx.save_attempt(replace(before, due_at=LATER), lease))
    assert (await read(store)).result == PASSED
    assert await due(store) == ["attempt-1"]


async def test_create_is_sent_once_and_keeps_the_lease(store, clock):
    await add(store, an_attempt())
    lease = await claim_one(store, Kind.ATTEMPT)
    clock.advance(seconds=1)
    assert await store.write(lambda tx: tx.send_create(lease))
    assert not await store.write(lambda tx: tx.send_create(lease))
    attempt = await read(store)
    now = START + timedelta(seconds=1)
    assert (attempt.state, attempt.create_sent_at, attempt.state_since) == (AttemptState.CREATING, now, now)
    assert await store.write(lambda tx: tx.save_attempt(attempt, lease))


async def test_create_is_not_sent_by_a_worker_that_lost_the_lease(store, clock):
    await add(store, an_attempt())
    old = await claim_one(store, Kind.ATTEMPT)
    clock.advance(seconds=80)
    await claim_one(store, Kind.ATTEMPT, token="token-2")
    assert not await store.write(lambda tx: tx.send_create(old))
    assert (await read(store)).create_sent_at is None


async def test_the_first_instance_ref_stays(store):
    await add(store, an_attempt(due_at=LATER))
    assert await store.write(lambda tx: tx.set_instance_ref("attempt-1", "one"))
    assert await store.write(lambda tx: tx.set_instance_ref("attempt-1", "one"))
    assert not await store.write(lambda tx: tx.set_instance_ref("attempt-1", "two"))
    assert not await store.write(lambda tx: tx.set_instance_ref("none", "one"))
    assert (await read(store)).instance_ref == "one"
    assert await due(store) == ["attempt-1"]


async def claimed(store, boot_id="boot-1", landed=None):
    return await store.write(
        lambda tx: tx.set_claimed(
            "attempt-1", boot_id=boot_id, token_sha256="t" * 64, landed=landed or {"python": "3.12"}
        )
    )


async def test_a_claim_notes_who_came_and_wakes_the_attempt(store, clock):
    await add(store, an_attempt(due_at=LATER))
    clock.advance(seconds=2)
    assert await claimed(store)
    now = START + timedelta(seconds=2)
    assert await read(store) == an_attempt(
        due_at=now + PHASE_PAUSE,
        claimed_at=now,
        boot_id="boot-1",
        token_sha256="t" * 64,
        landed={"python": "3.12"},
        last_seen_at=now,
        phase=Phase.CLAIMED,
        phase_times={"claimed": now},
    )


async def test_the_same_boot_may_repeat_its_claim_for_two_minutes(store, clock):
    await add(store, an_attempt())
    assert await claimed(store)
    clock.advance(seconds=120)
    assert await claimed(store)
    clock.advance(seconds=1)
    assert not await claimed(store)
    assert (await read(store)).claimed_at == START


async def test_another_boot_may_not_claim(store):
    await add(store, an_attempt())
    assert await claimed(store)
    assert not await claimed(store, "boot-2")
    assert (await read(store)).boot_id == "boot-1"


@pytest.mark.parametrize(
    "changes",
    [
        {"claim_revoked_at": START},
        {"result": PASSED},
        {"state": AttemptState.VOID},
        {"state": AttemptState.GONE},
    ],
)
@pytest.mark.parametrize("boot_before", ["", "boot-1"])
async def test_nobody_may_claim_an_attempt_that_is_over(store, changes, boot_before):
    before = {"boot_id": boot_before, "claimed_at": START} if boot_before else {}
    await add(store, an_attempt(**changes, **before))
    assert not await claimed(store)


async def test_the_first_result_stays_and_wakes_attempt_and_run(store, clock):
    await add(store, an_attempt(due_at=LATER))
    clock.advance(seconds=9)
    assert await store.write(lambda tx: tx.set_result("attempt-1", PASSED))
    assert not await store.write(lambda tx: tx.set_result("attempt-1", Result(kind=ResultKind.LOST)))
    assert not await store.write(lambda tx: tx.set_result("none", PASSED))
    attempt = await read(store)
    assert (attempt.result, attempt.result_at) == (PASSED, START + timedelta(seconds=9))
    assert await due(store) == ["attempt-1"]
    assert await due(store, Kind.RUN) == ["run-1"]


async def test_a_contact_moves_only_the_time_of_the_last_one(store, clock):
    await add(store, an_attempt(due_at=LATER))
    clock.advance(seconds=5)
    await store.write(lambda tx: tx.saw("attempt-1"))
    assert await read(store) == an_attempt(due_at=LATER, last_seen_at=START + timedelta(seconds=5))


async def test_a_phase_is_stamped_once_and_never_goes_back(store, clock):
    await add(store, an_attempt(due_at=LATER))
    for phase in (Phase.SETUP, Phase.RUNNING, Phase.SETUP, Phase.RUNNING):
        clock.advance(seconds=1)
        await store.write(lambda tx, phase=phase: tx.saw("attempt-1", phase=phase))
    attempt = await read(store)
    assert attempt.phase is Phase.RUNNING
    assert attempt.phase_times == {"setup": START + timedelta(seconds=1), "running": START + timedelta(seconds=2)}
    assert attempt.last_seen_at == START + timedelta(seconds=4)
    assert await due(store) == ["attempt-1"]


async def test_a_time_of_a_build_is_noted_once_and_is_no_phase(store):
    await add(store, an_attempt(due_at=LATER))
    for at in (START, LATER):
        await store.write(lambda tx, at=at: tx.note_time("attempt-1", BUILDING, at))
    await store.write(lambda tx: tx.note_time("nobody", BUILDING, START))
    assert await read(store) == an_attempt(due_at=LATER, phase_times={BUILDING: START})


async def test_a_repeated_phase_is_no_news(store):
    await add(store, an_attempt())
    await store.write(lambda tx: tx.saw("attempt-1", phase=Phase.SETUP))
    lease = await claim_one(store, Kind.ATTEMPT)
    await store.write(lambda tx: tx.release(lease, due_at=LATER))
    await store.write(lambda tx: tx.saw("attempt-1", phase=Phase.SETUP))
    assert await due(store) == []


async def look(store, state, seconds=0, **said):
    await store.write(lambda tx: tx.observed("attempt-1", state, at=START + timedelta(seconds=seconds), **said))


async def seen(store):
    attempt = await read(store)
    return attempt.observed, attempt.observed_at, attempt.observed_gone_at


async def test_a_new_instance_state_wakes_the_attempt_and_an_old_one_does_not(store):
    await add(store, an_attempt(due_at=LATER))
    await look(store, InstanceState.RUNNING)
    lease = await claim_one(store, Kind.ATTEMPT)
    await store.write(lambda tx: tx.release(lease, due_at=LATER))
    await look(store, InstanceState.RUNNING, seconds=15)
    assert await due(store) == []
    assert await seen(store) == (InstanceState.RUNNING, START + timedelta(seconds=15), None)
    await look(store, InstanceState.EXITED, seconds=30)
    assert await due(store) == ["attempt-1"]


async def test_an_instance_that_was_seen_and_is_not_listed_is_gone_since_then(store):
    await add(store, an_attempt(due_at=LATER))
    await look(store, InstanceState.RUNNING)
    await look(store, None, seconds=15)
    await look(store, None, seconds=30)
    assert await seen(store) == (InstanceState.RUNNING, START, START + timedelta(seconds=15))
    assert await due(store) == ["attempt-1"]


async def test_an_instance_that_is_listed_again_is_not_gone(store):
    await add(store, an_attempt())
    await look(store, InstanceState.RUNNING)
    await look(store, None, seconds=15)
    await look(store, InstanceState.RUNNING, seconds=30)
    assert (await seen(store))[2] is None


async def test_a_list_without_an_instance_that_was_never_made_says_nothing(store):
    await add(store, an_attempt(due_at=LATER))
    await look(store, None)
    assert await seen(store) == (None, None, None)
    assert await due(store) == []


async def test_a_list_from_before_the_instance_was_made_says_nothing(store, clock):
    await add(store, an_attempt())
    clock.advance(seconds=10)
    await store.write(lambda tx: tx.set_instance_ref("attempt-1", "one"))
    await look(store, None, seconds=9)
    assert (await seen(store))[2] is None
    await look(store, None, seconds=10)
    assert (await seen(store))[2] == START + timedelta(seconds=10)


async def test_an_older_list_does_not_undo_a_newer_one(store):
    await add(store, an_attempt())
    await look(store, InstanceState.EXITED, seconds=30)
    await look(store, InstanceState.RUNNING, seconds=15)
    await look(store, None, seconds=15)
    assert await seen(store) == (InstanceState.EXITED, START + timedelta(seconds=30), None)


async def measured(store, *uses):
    """The attempt after these measures, and whether the last one woke it."""
    await add(store, an_attempt(due_at=LATER))
    for number, use in enumerate(uses):
        if number == len(uses) - 1:
            await look(store, InstanceState.RUNNING, number)
            lease = await claim_one(store, Kind.ATTEMPT)
            await store.write(lambda tx, lease=lease: tx.release(lease, due_at=LATER))
        await look(store, InstanceState.RUNNING, number, disk=use)
    return (await read(store)).disk, await due(store) == ["attempt-1"]


FEW, MORE, TOO_MUCH = (DiskUse(used_mib=mib, limit_mib=100) for mib in (1, 100, 101))
FULL_HOST = DiskUse(used_mib=50, limit_mib=100, host_free_mib=3)


@pytest.mark.parametrize(
    ("uses", "kept", "woken"),
    [
        ((FEW, MORE), MORE, False),  # no news: it comes every few seconds
        ((FEW, None), FEW, False),
        ((FEW, TOO_MUCH), TOO_MUCH, True),
        ((TOO_MUCH, FEW), TOO_MUCH, False),  # the reason of an end does not change
        ((TOO_MUCH, FULL_HOST), FULL_HOST, True),
        ((FULL_HOST, TOO_MUCH), FULL_HOST, False),
        ((DiskUse(used_mib=9_999, limit_mib=0), FEW), FEW, False),  # 0 is no limit
    ],
)
async def test_a_measure_of_the_disk_wakes_when_it_is_too_much_and_stays_then(store, uses, kept, woken):
    assert await measured(store, *uses) == (kept, woken)


async def test_the_exit_code_of_an_instance_is_set_once(store):
    await add(store, an_attempt())
    await look(store, InstanceState.EXITED, exit_code=137)
    await look(store, InstanceState.EXITED, 1, exit_code=0)
    await look(store, InstanceState.EXITED, 2)
    assert (await read(store)).exit_code == 137


async def test_what_is_as_it_was_is_noted_for_many_at_once(store, clock):
    names = [f"attempt-{number:04}" for number in range(1200)]
    await store.write(lambda tx: [tx.add_attempt(an_attempt(name, name=name, run_id=name)) for name in names])
    seen, earlier = clock.now() + timedelta(seconds=9), clock.now()
    await store.write(lambda tx: tx.observed_again(names[1:], at=seen))
    await store.write(lambda tx: tx.observed_again(names[1:2], at=earlier))
    times = await store.read(lambda tx: [tx.attempt(name).observed_at for name in (names[0], names[1], names[-1])])
    assert times == [None, seen, seen]


async def test_ids_of_live_attempts(store):
    states = {
        "one": AttemptState.LIVE,
        "two": AttemptState.GONE,
        "three": AttemptState.VOID,
        "four": AttemptState.UNSURE,
    }
    await store.write(
        lambda tx: [tx.add_attempt(an_attempt(one, name=one, run_id=one, state=state)) for one, state in states.items()]
    )
    assert await store.read(lambda tx: tx.live_attempt_ids()) == {"one", "four"}
