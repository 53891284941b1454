from __future__ import annotations

from datetime import timedelta

import anyio
import pytest
import structlog

from gpurun.domain.errors import Bug, ForgeUnavailable, NewerRow, Transient
from gpurun.domain.run import RunState
from gpurun.flow import failpoints
from gpurun.flow import worker as worker_module
from gpurun.flow.worker import LEASE, UNFORESEEN, NotMine, Worker, go_on, still_mine
from gpurun.ports.store import Kind
from tests.fakes.rows import a_run

LEASE_S = 75


@pytest.fixture
def store_url(tmp_path):
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture(autouse=True)
def logs():
    with structlog.testing.capture_logs() as captured:
        yield captured


def run_id(number):
    return f"01kdrun{number:019}"


async def add_runs(store, count=1):
    for number in range(count):
        await store.write(lambda tx, n=number: tx.add_run(a_run(id=run_id(n), due_at=tx.now())))


def worker_of(store, clock, chance, handler, limit=4):
    return Worker(store, clock, chance, {Kind.RUN: handler}, limit=limit)


def finisher(store, seen):
    async def finish(lease):
        seen.append(lease.id)
        await store.write(lambda tx: tx.release(lease, due_at=None))

    return finish


async def test_what_is_due_is_handled_once(store, clock, chance):
    seen = []
    await add_runs(store, 3)
    await worker_of(store, clock, chance, finisher(store, seen)).step_until_idle()
    assert sorted(seen) == [run_id(n) for n in range(3)]


async def test_a_row_that_is_due_again_stays_with_its_worker(store, clock, chance):
    seen = []

    async def three_steps(lease):
        seen.append((lease.id, lease.token))
        due_at = clock.now() if len(seen) % 3 else None

        def give_back(tx):
            tx.release(lease, due_at=due_at)
            return go_on(tx, lease)

        still_mine(for_s=70)
        return await store.write(give_back)

    await add_runs(store, 2)
    await worker_of(store, clock, chance, three_steps).step_until_idle()
    assert [row for row, _ in seen] == [run_id(0)] * 3 + [run_id(1)] * 3
    assert len({token for _, token in seen}) == 1  # of the one claim
    assert await store.read(lambda tx: tx.next_due()) is None


async def test_a_worker_that_stops_leaves_the_next_step_to_others(store, clock, chance):
    started, go, steps = anyio.Event(), anyio.Event(), []

    async def endless(lease):
        steps.append(lease)
        started.set()
        await go.wait()

        def give_back(tx):
            tx.release(lease, due_at=tx.now())
            return go_on(tx, lease)

        return await store.write(give_back)

    await add_runs(store)
    worker, stop = worker_of(store, clock, chance, endless), anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run, stop)
            await started.wait()
            stop.set()
            await anyio.sleep(0.01)
            go.set()
    assert len(steps) == 1
    assert await store.read(lambda tx: tx.next_due()) == clock.now()  # free, and not leased by the dead


async def test_a_lost_lease_is_not_taken_again_by_going_on(store, clock, chance):
    held = []

    async def slow(lease):
        clock.advance(seconds=LEASE_S)
        held.extend(await store.write(lambda tx: tx.claim(Kind.RUN, limit=1, token="other", length=LEASE)))

        def give_back(tx):
            assert not tx.release(lease, due_at=tx.now())
            return go_on(tx, lease)

        return await store.write(give_back)

    await add_runs(store)
    await worker_of(store, clock, chance, slow).step_until_idle()
    assert [lease.token for lease in held] == ["other"]
    assert await store.write(lambda tx: tx.release(held[0], due_at=None))


@pytest.mark.parametrize(
    ("error", "wait_s", "event", "told"),
    [
        (Transient("down"), 1, "step_delayed", "down"),
        (ForgeUnavailable("slow down", retry_after_s=90), 90, "step_delayed", "slow down"),
        (ForgeUnavailable("come again", retry_after_s=1e300), 900, "step_delayed", "come again"),
        (Bug("impossible"), 1, "step_failed", UNFORESEEN),
        (KeyError("https://user:password@host"), 1, "step_failed", UNFORESEEN),
    ],
)
async def test_a_failed_step_is_tried_again_later(store, clock, chance, logs, error, wait_s, event, told):
    async def fail(lease):
        raise error

    await add_runs(store)
    await worker_of(store, clock, chance, fail).step_until_idle()
    row = await store.read(lambda tx: tx.run(run_id(0)))
    assert (row.tries, row.last_error, row.state) == (1, told, RunState.PLANNING)
    assert row.due_at == clock.now() + timedelta(seconds=wait_s)
    assert event in [entry["event"] for entry in logs]


async def test_the_wait_doubles_up_to_a_minute(store, clock, chance):
    async def fail(lease):
        raise Transient("down")

    await add_runs(store)
    worker, waits = worker_of(store, clock, chance, fail), []
    for _ in range(8):
        await worker.step_until_idle()
        row = await store.read(lambda tx: tx.run(run_id(0)))
        waits.append((row.due_at - clock.now()).total_seconds())
        clock.advance(seconds=waits[-1])
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_a_row_of_a_later_version_is_left_as_it_is(store, clock, chance, logs):
    async def puzzled(lease):
        raise NewerRow("'hibernating' is not a valid RunState")

    await add_runs(store)
    await worker_of(store, clock, chance, puzzled).step_until_idle()
    row = await store.read(lambda tx: tx.run(run_id(0)))
    assert (row.tries, row.last_error) == (0, "")
    assert row.due_at == clock.now() + timedelta(minutes=1)
    assert ("row_not_understood", "error") in [(entry["event"], entry["log_level"]) for entry in logs]


async def test_a_step_knows_how_long_its_lease_lasts(store, clock, chance):
    seen = []

    async def slow(lease):
        still_mine(for_s=45)
        clock.advance(seconds=31)
        seen.append("44 s are left")
        still_mine(for_s=45)
        seen.append("never")

    await add_runs(store)
    await worker_of(store, clock, chance, slow).step_until_idle()
    assert seen == ["44 s are left"]
    row = await store.read(lambda tx: tx.run(run_id(0)))
    assert row.tries == 0  # nobody's fault; the next holder decides


async def test_a_row_whose_worker_died_is_taken_when_the_lease_ends(store, clock, chance):
    async def die(lease):
        raise NotMine

    seen = []
    await add_runs(store)
    await worker_of(store, clock, chance, die).step_until_idle()
    successor = worker_of(store, clock, chance, finisher(store, seen))
    clock.advance(seconds=LEASE_S - 1)
    await successor.step_until_idle()
    assert seen == []
    clock.advance(seconds=1)
    await successor.step_until_idle()
    assert seen == [run_id(0)]


async def test_leases_of_long_steps_are_renewed(store, clock, chance):
    started, release, left = anyio.Event(), anyio.Event(), []

    async def long(lease):
        started.set()
        await release.wait()
        still_mine(for_s=70)
        left.append("mine")
        await store.write(lambda tx: tx.release(lease, due_at=None))

    await add_runs(store)
    worker, stop = worker_of(store, clock, chance, long), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run, stop)
        await started.wait()
        for _ in range(6):
            renewed = anyio.Event()
            failpoints.arm("worker.renew.after", renewed.set)
            clock.advance(seconds=20)
            await renewed.wait()
        release.set()
        await worker.drain()
        stop.set()
    assert left == ["mine"]


async def test_the_loop_handles_new_work_and_stops_when_told(store, clock, chance):
    done = anyio.Event()

    async def finish(lease):
        await store.write(lambda tx: tx.release(lease, due_at=None))
        done.set()

    worker, stop = worker_of(store, clock, chance, finish), anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run, stop)
            await anyio.sleep(0)
            await add_runs(store)
            await done.wait()
            stop.set()


async def test_what_only_time_asks_for_is_claimed_together(store, clock, chance, monkeypatch):
    monkeypatch.setattr(worker_module, "POLL_S", 60.0)
    seen = []
    for number, after_s in enumerate((0, 0.1, 0.2)):
        due_at = clock.now() + timedelta(seconds=after_s)
        await store.write(lambda tx, n=number, at=due_at: tx.add_run(a_run(id=run_id(n), due_at=at)))
    worker, stop = worker_of(store, clock, chance, finisher(store, seen)), anyio.Event()
    claims = []
    claim = worker._claim

    async def counted(kinds):
        claims.append(await claim(kinds))
        return claims[-1]

    monkeypatch.setattr(worker, "_claim", counted)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run, stop)
            while len(seen) < 3:
                await anyio.sleep(0.001)
                if seen:
                    clock.advance(milliseconds=1)
            stop.set()
    assert [len(leases) for leases in claims] == [1, 2]


async def test_no_more_steps_than_places(store, clock, chance):
    running, most, go = 0, 0, anyio.Event()

    async def wait(lease):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        await store.write(lambda tx: tx.release(lease, due_at=None))
        running -= 1

    await add_runs(store, 5)
    worker, stop = worker_of(store, clock, chance, wait, limit=2), anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run, stop)
            while running < 2:
                await anyio.sleep(0.001)
            go.set()
            while await store.read(lambda tx: tx.next_due()) is not None:
                await anyio.sleep(0.001)
            stop.set()
    assert most == 2


async def test_running_steps_end_before_the_worker_does(store, clock, chance):
    started, seen = anyio.Event(), []

    async def slow(lease):
        started.set()
        await anyio.sleep(0.05)
        await store.write(lambda tx: tx.release(lease, due_at=None))
        seen.append(lease.id)

    await add_runs(store)
    worker, stop = worker_of(store, clock, chance, slow), anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run, stop)
            await started.wait()
            stop.set()
    assert seen == [run_id(0)]


async def test_a_database_that_is_away_does_not_end_the_loop(store, clock, chance, logs):
    done, write, failures = anyio.Event(), store.write, [OSError("away"), OSError("away")]

    async def flaky(fn, **how):
        if failures:
            raise failures.pop()
        return await write(fn, **how)

    async def finish(lease):
        await write(lambda tx: tx.release(lease, due_at=None))
        done.set()

    await add_runs(store)
    store.write = flaky
    worker, stop = worker_of(store, clock, chance, finish), anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run, stop)
            while not done.is_set():
                await anyio.sleep(0.001)
                clock.advance(seconds=0.1)
            stop.set()
    assert [entry["event"] for entry in logs].count("claim_failed") == 2
