import asyncio
from datetime import timedelta

import pytest

from gpurun.adapters.store.base import WORK
from gpurun.domain.delivery import InboxState
from gpurun.domain.publication import PublicationState
from gpurun.domain.run import AttemptState, RunState, StrayState
from gpurun.ports.store import Kind, Lease
from tests.fakes.clock import START
from tests.services.postgres import make_store
from tests.unit.adapters.store.samples import (
    LEASE,
    a_delivery,
    a_gate,
    a_publication,
    a_run,
    a_stray,
    an_attempt,
    claim,
    claim_one,
)


async def add_runs(store, *runs):
    await store.write(lambda tx: [tx.add_run(run) for run in runs])


async def one_of_each(store):
    await store.accept(a_delivery())

    def fill(tx):
        tx.add_run(a_run())
        tx.add_attempt(an_attempt())
        tx.ensure_account("docker")
        tx.add_stray(a_stray())
        tx.publish(a_publication())
        tx.open_gate(a_gate())

    await store.write(fill)


async def test_due_rows_come_oldest_due_first(store, clock):
    late = a_run("late", due_at=START + timedelta(seconds=2))
    early = a_run("early", due_at=START + timedelta(seconds=1))
    future = a_run("future", due_at=START + timedelta(hours=1))
    idle = a_run("idle", due_at=None)
    await add_runs(store, late, early, future, idle)
    clock.advance(seconds=10)
    assert [lease.id for lease in await claim(store, Kind.RUN)] == ["early", "late"]


async def test_a_claim_takes_at_most_its_limit(store):
    await add_runs(store, *(a_run(f"run-{number}") for number in range(5)))
    assert [len(await claim(store, Kind.RUN, limit=2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_a_leased_row_comes_again_when_its_lease_has_ended(store, clock):
    await add_runs(store, a_run())
    await claim_one(store, Kind.RUN)
    clock.advance(seconds=74)
    assert await claim(store, Kind.RUN) == ()
    clock.advance(seconds=1)
    assert await claim_one(store, Kind.RUN, token="other") == Lease(Kind.RUN, "run-1", "other", 0)


@pytest.mark.parametrize("kind", Kind)
async def test_rows_of_every_kind_are_claimed_given_back_and_claimed_again(store, kind):
    await one_of_each(store)
    lease = await claim_one(store, kind)
    assert await claim(store, kind) == ()
    assert await store.write(lambda tx: tx.release(lease, due_at=tx.now()))
    assert (await claim_one(store, kind)).id == lease.id


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (Kind.INBOX, InboxState.DONE),
        (Kind.INBOX, InboxState.IGNORED),
        (Kind.INBOX, InboxState.POISON),
        (Kind.RUN, RunState.ENDED),
        (Kind.ATTEMPT, AttemptState.GONE),
        (Kind.ATTEMPT, AttemptState.VOID),
        (Kind.STRAY, StrayState.GONE),
        (Kind.PUBLICATION, PublicationState.DEAD),
        (Kind.RUN, "state_of_a_later_version"),
    ],
)
async def test_a_row_in_an_end_state_or_an_unknown_one_is_never_claimed_woken_or_waited_for(store, kind, state):
    await one_of_each(store)
    table = WORK[kind]
    await store.write(lambda tx: tx._connection.execute(table.update().values(state=state)))
    others = [other for other in Kind if other is not kind]
    await store.write(lambda tx: [tx.claim(other, limit=9, token="t", length=timedelta(days=9)) for other in others])
    await store.write(lambda tx: tx.wake(kind, "1" if kind is Kind.INBOX else f"{kind}-1"))
    assert await claim(store, kind) == ()
    assert await store.read(lambda tx: tx.next_due()) == START + timedelta(days=9)


async def test_renewing_says_which_are_still_held(store, clock):
    await add_runs(store, a_run("kept"), a_run("lost"))
    await claim(store, Kind.RUN)
    clock.advance(seconds=60)
    await store.write(lambda tx: tx.release(Lease(Kind.RUN, "lost", "token-1", 0), due_at=None))
    renewed = await store.write(lambda tx: tx.renew(Kind.RUN, ["kept", "lost", "none"], "token-1", length=LEASE))
    assert renewed == {"kept"}
    clock.advance(seconds=74)
    assert await claim(store, Kind.RUN) == ()


async def test_a_lost_lease_changes_nothing(store, clock):
    await add_runs(store, a_run())
    old = await claim_one(store, Kind.RUN)
    clock.advance(seconds=80)
    new = await claim_one(store, Kind.RUN, token="token-2")
    assert not await store.write(lambda tx: tx.release(old, due_at=None))
    assert not await store.write(lambda tx: tx.failed(old, "late", due_at=None))
    assert not await store.write(lambda tx: tx.save_run(a_run(detail="late"), old))
    assert await store.read(lambda tx: tx.run("run-1")) == a_run()
    assert await store.write(lambda tx: tx.release(new, due_at=None))


async def test_a_failed_step_is_counted_and_comes_back_later(store, clock):
    await add_runs(store, a_run())
    lease = await claim_one(store, Kind.RUN)
    assert await store.write(lambda tx: tx.failed(lease, "registry down", due_at=tx.now() + timedelta(seconds=4)))
    run = await store.read(lambda tx: tx.run("run-1"))
    assert (run.tries, run.last_error) == (1, "registry down")
    assert await claim(store, Kind.RUN) == ()
    clock.advance(seconds=4)
    assert (await claim_one(store, Kind.RUN)).tries == 1


async def test_waking_makes_a_row_due_now_and_never_later_than_it_was(store, clock):
    await add_runs(
        store, a_run("sleeping", due_at=START + timedelta(hours=1)), a_run("idle", due_at=None), a_run("due")
    )
    clock.advance(minutes=1)
    await store.write(lambda tx: [tx.wake(Kind.RUN, name) for name in ("sleeping", "idle", "due", "none")])
    runs = await store.read(lambda tx: {run.id: run.due_at for run in tx.latest_runs(limit=9)})
    now = START + timedelta(minutes=1)
    assert runs == {"sleeping": now, "idle": now, "due": START}


async def test_a_wake_for_later_makes_a_row_due_then_and_never_later_than_it_was(store):
    later, soon = START + timedelta(minutes=5), START + timedelta(seconds=1)
    await add_runs(
        store, a_run(id="run-1", due_at=later), a_run(id="run-2", due_at=None), a_run(id="run-3", due_at=START)
    )
    await store.write(lambda tx: [tx.wake_by(Kind.RUN, f"run-{number}", soon) for number in (1, 2, 3)])
    runs = await store.read(lambda tx: [tx.run(f"run-{number}") for number in (1, 2, 3)])
    assert [run.due_at for run in runs] == [soon, soon, START]


async def test_a_wake_for_later_that_meets_a_step_is_a_wake(store):
    await add_runs(store, a_run())
    lease = await claim_one(store, Kind.RUN)
    await store.write(lambda tx: tx.wake_by(Kind.RUN, "run-1", START + timedelta(seconds=1)))
    await store.write(lambda tx: tx.release(lease, due_at=START + timedelta(minutes=5)))
    assert await claim_one(store, Kind.RUN)


@pytest.mark.parametrize("ending", ["save", "release", "failed"])
async def test_a_wake_during_a_step_is_not_lost_when_the_step_ends(store, clock, ending):
    await add_runs(store, a_run())
    lease = await claim_one(store, Kind.RUN)
    await store.write(lambda tx: tx.wake(Kind.RUN, "run-1"))
    later = START + timedelta(hours=1)
    ends = {
        "save": lambda tx: tx.save_run(a_run(due_at=later), lease),
        "release": lambda tx: tx.release(lease, due_at=later),
        "failed": lambda tx: tx.failed(lease, "", due_at=later),
    }
    assert await store.write(ends[ending])
    lease = await claim_one(store, Kind.RUN)
    assert await store.write(lambda tx: tx.save_run(a_run(due_at=later), lease))
    assert await claim(store, Kind.RUN) == ()  # one wake, one more step


async def test_a_row_that_was_given_back_is_kept_when_it_is_due(store, clock):
    await add_runs(store, a_run())
    lease = await claim_one(store, Kind.RUN)

    def give_back(due_at, *, woken=False):
        def fn(tx):
            if woken:
                tx.wake(Kind.RUN, "run-1")
            assert tx.save_run(a_run(due_at=due_at, tries=2), lease)
            return tx.keep(lease, length=LEASE)

        return store.write(fn)

    later = START + timedelta(hours=1)
    assert await give_back(START) == Lease(Kind.RUN, "run-1", lease.token, 2)
    assert await claim(store, Kind.RUN) == ()
    clock.advance(seconds=74)
    assert await claim(store, Kind.RUN, token="other") == ()
    assert await give_back(later, woken=True) is not None
    assert await give_back(later) is None  # that wake is used up
    assert await claim(store, Kind.RUN) == ()


async def test_the_next_due_time_is_the_earliest_of_all_tables(store):
    assert await store.read(lambda tx: tx.next_due()) is None
    await add_runs(store, a_run(due_at=START + timedelta(minutes=5)))
    await store.write(lambda tx: tx.publish(a_publication(due_at=START + timedelta(minutes=3))))
    assert await store.read(lambda tx: tx.next_due()) == START + timedelta(minutes=3)
    due = {Kind.RUN: START + timedelta(minutes=5), Kind.PUBLICATION: START + timedelta(minutes=3)}
    assert await store.read(lambda tx: tx.due()) == due


async def test_a_leased_row_is_next_due_when_its_lease_ends(store):
    await add_runs(store, a_run())
    await claim_one(store, Kind.RUN)
    assert await store.read(lambda tx: tx.next_due()) == START + LEASE


async def test_a_delivery_behind_another_one_is_not_waited_for(store):
    await store.accept(a_delivery("first"))
    await store.accept(a_delivery("second"))
    await claim_one(store, Kind.INBOX)
    assert await store.read(lambda tx: tx.next_due()) == START + LEASE


async def test_opening_sqlite_ends_the_leases_of_the_dead_process(tmp_path, clock, chance):
    path = str(tmp_path / "gpurun.sqlite")
    async with make_store(path, clock, chance) as store:
        await add_runs(store, a_run())
        await claim_one(store, Kind.RUN)
    async with make_store(path, clock, chance) as store:
        assert (await claim_one(store, Kind.RUN, token="new")).id == "run-1"


@pytest.mark.postgres
async def test_workers_that_claim_at_the_same_time_never_share_a_row(postgres_url, clock, chance):
    async with make_store(postgres_url, clock, chance) as one, make_store(postgres_url, clock, chance) as two:
        await add_runs(one, *(a_run(f"run-{number:03}") for number in range(120)))

        async def take_all(store, token):
            taken = []
            while leases := await claim(store, Kind.RUN, limit=3, token=token):
                taken += [lease.id for lease in leases]
            return taken

        workers = [
            take_all(store, f"{place}-{number}") for place, store in enumerate((one, two)) for number in range(4)
        ]
        taken = [run_id for ids in await asyncio.gather(*workers) for run_id in ids]
        assert sorted(taken) == [f"run-{number:03}" for number in range(120)]


@pytest.mark.postgres
async def test_opening_postgres_leaves_the_leases_of_other_processes(postgres_url, clock, chance):
    async with make_store(postgres_url, clock, chance) as one:
        await add_runs(one, a_run())
        lease = await claim_one(one, Kind.RUN)
        async with make_store(postgres_url, clock, chance) as two:
            assert await claim(two, Kind.RUN, token="other") == ()
        assert await one.write(lambda tx: tx.release(lease, due_at=None))
