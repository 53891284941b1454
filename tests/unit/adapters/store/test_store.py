import asyncio
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import event, text

from gpurun.adapters.store import PostgresStore, SqliteStore, adopt, identity, open_store, verify_audit
from gpurun.domain.delivery import Delivery
from gpurun.domain.errors import Bug, StoreBusy, Transient
from gpurun.ports.store import Kind, Store
from tests.fakes.clock import FakeChance
from tests.services.postgres import make_store
from tests.unit.adapters.store.samples import a_delivery, a_run, claim, claim_one

ROOT = Path(__file__).parents[4]


def conforms(store: SqliteStore | PostgresStore) -> Store:
    """mypy reads this."""
    return store


# identity


async def test_name_and_secret_are_made_once(store_url, clock, chance):
    async with make_store(store_url, clock, chance) as store:
        first = (store.install_id, store.install_secret)
    async with make_store(store_url, clock, FakeChance(clock, seed=2)) as store:
        assert (store.install_id, store.install_secret) == first
    assert re.fullmatch("[a-z0-9]{8}", first[0])
    assert len(first[1]) == 32


async def test_two_installations_have_two_names(tmp_path, clock):
    async with (
        SqliteStore(tmp_path / "a.sqlite", clock=clock, chance=FakeChance(clock, seed=1)) as one,
        SqliteStore(tmp_path / "b.sqlite", clock=clock, chance=FakeChance(clock, seed=2)) as two,
    ):
        assert one.install_id != two.install_id
        assert one.install_secret != two.install_secret


@pytest.mark.postgres
async def test_processes_that_start_together_agree_on_one_name(postgres_url, clock):
    stores = [make_store(postgres_url, clock, FakeChance(clock, seed=seed)) for seed in range(4)]
    await asyncio.gather(*(store.__aenter__() for store in stores))
    try:
        assert len({(store.install_id, store.install_secret) for store in stores}) == 1
    finally:
        for store in stores:
            await store.__aexit__(None, None, None)


SECOND = """
import asyncio, sys
sys.path.insert(0, {bot!r})
from gpurun.adapters.clock import SystemChance, SystemClock
from gpurun.adapters.store import SqliteStore

async def main():
    async with SqliteStore(sys.argv[1], clock=SystemClock(), chance=SystemChance()):
        print("opened")

asyncio.run(main())
"""


async def test_a_second_process_is_refused_and_pointed_at_postgres(tmp_path, clock, chance):
    path = tmp_path / "gpurun.sqlite"
    async with SqliteStore(path, clock=clock, chance=chance):
        script = SECOND.format(bot=str(ROOT / "bot"))
        second = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", script, path],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert second.stdout == ""
    assert "StoreBusy: Another gpurun process uses" in second.stderr
    assert "GPURUN_DATABASE_URL=postgresql://" in second.stderr


async def test_a_database_can_be_opened_again_after_a_refusal_and_after_a_close(tmp_path, clock, chance):
    path = tmp_path / "gpurun.sqlite"
    async with SqliteStore(path, clock=clock, chance=chance):
        with pytest.raises(StoreBusy):
            await SqliteStore(path, clock=clock, chance=chance).__aenter__()
    async with SqliteStore(path, clock=clock, chance=chance):
        pass


async def test_a_copied_database_is_refused_until_it_is_adopted(tmp_path, clock, chance):
    original, copy = tmp_path / "original.sqlite", tmp_path / "copy.sqlite"
    async with SqliteStore(original, clock=clock, chance=chance) as store:
        await store.accept(a_delivery())
        name = store.install_id
    shutil.copy(original, copy)
    with pytest.raises(StoreBusy, match="gpurun db adopt"):
        await SqliteStore(copy, clock=clock, chance=chance).__aenter__()
    adopt(copy)
    async with SqliteStore(copy, clock=clock, chance=chance) as store:
        assert store.install_id == name
        assert len(await claim(store, Kind.INBOX)) == 1


async def test_a_database_on_another_machine_is_refused(tmp_path, clock, chance, monkeypatch):
    path = tmp_path / "gpurun.sqlite"
    async with SqliteStore(path, clock=clock, chance=chance):
        pass
    other = tmp_path / "machine-id"
    other.write_text("0123456789abcdef\n")
    monkeypatch.setattr(identity, "MACHINE_ID", other)
    with pytest.raises(StoreBusy, match="gpurun db adopt"):
        await SqliteStore(path, clock=clock, chance=chance).__aenter__()


@pytest.mark.postgres
async def test_a_cloned_postgres_database_is_refused_until_it_is_adopted(postgres_url, postgres_cluster, clock, chance):
    async with make_store(postgres_url, clock, chance):
        pass
    name = postgres_url.rsplit("/", 1)[1]
    postgres_cluster.sql(f"CREATE DATABASE {name}_copy TEMPLATE {name}")
    try:
        with pytest.raises(StoreBusy, match="gpurun db adopt"):
            await make_store(f"{postgres_url}_copy", clock, chance).__aenter__()
        adopt(f"{postgres_url}_copy")
        async with make_store(f"{postgres_url}_copy", clock, chance):
            pass
    finally:
        postgres_cluster.sql(f"DROP DATABASE {name}_copy WITH (FORCE)")


async def test_the_address_chooses_the_database(tmp_path, clock, chance):
    assert isinstance(open_store(tmp_path / "x.sqlite", clock=clock, chance=chance), SqliteStore)
    assert isinstance(open_store("postgresql://u@127.0.0.1/x", clock=clock, chance=chance), PostgresStore)
    with pytest.raises(ValueError, match="mysql"):
        await open_store("mysql://u@127.0.0.1/x", clock=clock, chance=chance).__aenter__()


# transactions


async def test_time_stands_still_in_a_transaction(store, clock):
    def look(tx):
        before = tx.now()
        clock.advance(seconds=5)
        return before, tx.now()

    before, after = await store.write(look)
    assert before == after


@pytest.mark.postgres
async def test_postgres_gives_its_own_time_unless_told(postgres_url, chance):
    async with PostgresStore(postgres_url, chance=chance) as store:
        ours = await store.read(lambda tx: tx.now())
        theirs = await store.read(lambda tx: tx._connection.execute(text("SELECT clock_timestamp()")).scalar_one())
    assert ours.tzinfo is not None
    assert 0 <= (theirs - ours).total_seconds() < 30


async def test_a_read_cannot_write(store):
    with pytest.raises((Bug, Transient)):
        await store.read(lambda tx: tx.add_run(a_run()))
    await store.write(lambda tx: tx.add_run(a_run()))


async def test_a_closed_store_says_so(store_url, clock, chance):
    async with make_store(store_url, clock, chance) as store:
        pass
    with pytest.raises(Bug):
        await store.write(lambda tx: None)
    with pytest.raises(Bug):
        await store.accept(a_delivery())


async def test_closing_waits_for_what_was_asked(store_url, clock, chance):
    async with make_store(store_url, clock, chance) as store:
        tasks = [asyncio.ensure_future(store.accept(a_delivery(f"guid-{number}"))) for number in range(50)]
        tasks += [asyncio.ensure_future(store.write(lambda tx, n=n: tx.add_run(a_run(f"run-{n}")))) for n in range(9)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    async with make_store(store_url, clock, chance) as store:
        assert len(await store.read(lambda tx: tx.latest_runs(limit=99))) == 9
        rows = text("SELECT count(*) FROM inbox")
        assert await store.read(lambda tx: tx._connection.execute(rows).scalar_one()) == 50


async def test_a_write_whose_caller_gave_up_leaves_the_store_usable(store):
    started, go = threading.Event(), threading.Event()

    def slow(tx):
        started.set()
        assert go.wait(10)
        tx.add_run(a_run())

    waiting = asyncio.ensure_future(store.write(slow))
    await asyncio.to_thread(started.wait, 10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go.set()
    await store.write(lambda tx: tx.add_run(a_run("run-2")))
    assert (await store.read(lambda tx: tx.run("run-2"))) is not None


async def test_a_function_that_ends_by_stop_iteration_does_not_hang_its_caller(store):
    with pytest.raises(Bug):
        await store.write(lambda tx: next(iter(())))


@pytest.mark.postgres
async def test_transactions_that_block_each_other_are_run_again(postgres_url, clock, chance):
    async with make_store(postgres_url, clock, chance) as store:
        await store.write(lambda tx: [tx.add_run(a_run(name)) for name in ("one", "two")])
        met = threading.Barrier(2)
        calls = []

        def cancel(first, second):
            def fn(tx):
                calls.append(first)
                tx.also_asked(first, "ada")
                if len(calls) <= 2:
                    met.wait(10)
                tx.also_asked(second, "ada")

            return fn

        await asyncio.gather(store.write(cancel("one", "two")), store.write(cancel("two", "one")))
        assert len(calls) > 2
        runs = await store.read(lambda tx: tx.latest_runs(limit=9))
        assert [run.also_asked for run in runs] == [("ada",), ("ada",)]


async def test_only_what_may_be_lost_does_not_wait_for_the_disk(tmp_path, clock, chance):
    def synchronous(tx):
        return tx._connection.exec_driver_sql("PRAGMA synchronous").scalar_one()

    full, normal = 2, 1
    async with SqliteStore(tmp_path / "a.sqlite", clock=clock, chance=chance) as store:
        assert await store.write(synchronous) == full
        assert await store.write(synchronous, durable=False) == normal
        assert await store.write(synchronous) == full
        assert await store.write(synchronous, durable=False) == normal
        gate = threading.Event()
        together = [
            store.write(lambda tx: gate.wait(10)),
            store.write(synchronous, durable=False),
            store.write(synchronous),
        ]
        sharing = asyncio.gather(*together)  # the last two wait for the first, and share the next commit
        await asyncio.sleep(0.01)
        gate.set()
        assert (await sharing)[1:] == [full, full]
        await store.write(synchronous, durable=False)
        await store.accept(a_delivery("guid-1"))
        with store._here.database._writer.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == full


# accept


async def test_a_burst_shares_few_commits(store_url, clock, chance, monkeypatch):
    async with make_store(store_url, clock, chance) as store:
        commits = 0
        accept = store._here.database.accept

        def counted(deliveries):
            nonlocal commits
            commits += 1
            return accept(deliveries)

        monkeypatch.setattr(store._here.database, "accept", counted)
        answers = await asyncio.gather(*(store.accept(a_delivery(f"guid-{number}")) for number in range(600)))
        assert answers == [True] * 600
        assert 3 <= commits <= 10


async def test_writes_that_wait_share_a_commit_and_one_that_fails_takes_no_other_along(tmp_path, clock, chance):
    async with SqliteStore(tmp_path / "a.sqlite", clock=clock, chance=chance) as store:
        commits, busy, go = [], threading.Event(), threading.Event()

        def block(tx):
            busy.set()
            assert go.wait(10)

        def add(number):
            def fn(tx):
                tx.add_run(a_run(f"run-{number}"))
                if number == 3:
                    raise StoreBusy("three")
                if number == 5:
                    tx.add_run(a_run("run-4"))
                return number

            return fn

        first = asyncio.ensure_future(store.write(block))
        await asyncio.to_thread(busy.wait, 10)
        event.listen(store._here.database._writer, "commit", commits.append)
        writes = [asyncio.ensure_future(store.write(add(number))) for number in range(8)]
        await asyncio.sleep(0)
        writes[6].cancel()
        await asyncio.sleep(0)
        go.set()
        answers = await asyncio.gather(first, *writes, return_exceptions=True)
        assert [type(answer) for answer in answers if isinstance(answer, BaseException)] == [
            StoreBusy, Bug, asyncio.CancelledError,
        ]  # fmt: skip
        assert [answer for answer in answers if isinstance(answer, int)] == [0, 1, 2, 4, 7]
        kept = await store.read(lambda tx: sorted(run.id for run in tx.latest_runs(limit=99)))
        assert kept == ["run-0", "run-1", "run-2", "run-4", "run-7"]
        assert len(commits) == 2  # of `block`, and of all the others


KILLED = """
import asyncio, os, sys
sys.path[:0] = [{root!r}, {bot!r}]
from gpurun.adapters.clock import SystemChance, SystemClock
from gpurun.adapters.store import open_store
from tests.unit.adapters.store.samples import a_delivery

async def main():
    async with open_store(sys.argv[1], clock=SystemClock(), chance=SystemChance()) as store:
        async def one(number):
            while True:
                guid = f"guid-{{number}}"
                assert await store.accept(a_delivery(guid, number=number))
                os.write(1, guid.encode() + b"\\n")
                number += 8
        await asyncio.gather(*map(one, range(8)))

asyncio.run(main())
"""


async def test_what_was_acknowledged_is_there_after_kill_9(store_url, clock, chance):
    script = KILLED.format(root=str(ROOT), bot=str(ROOT / "bot"))
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, store_url, stdout=asyncio.subprocess.PIPE
    )
    lines = [await asyncio.wait_for(victim.stdout.readline(), 30) for _ in range(300)]
    victim.send_signal(signal.SIGKILL)
    rest = await victim.stdout.read()
    assert await victim.wait() == -signal.SIGKILL
    acknowledged = [line.decode().strip() for line in lines] + rest.decode().split("\n")[:-1]
    async with make_store(store_url, clock, chance) as store:
        guids = text("SELECT guid FROM inbox")
        kept = await store.read(lambda tx: tx._connection.execute(guids).scalars().all())
    assert len(kept) == len(set(kept))
    assert set(acknowledged) <= set(kept)


# committed


async def wait(store, timeout_s=0.02):
    return await store.committed(timeout_s=timeout_s)


async def test_nothing_committed_is_a_timeout(store):
    assert not await wait(store)


async def test_a_commit_ends_the_wait(store):
    waiting = asyncio.ensure_future(wait(store, timeout_s=10))
    await asyncio.sleep(0)
    await store.write(lambda tx: tx.add_run(a_run()))
    assert await waiting


async def test_a_delivery_ends_the_wait(store):
    waiting = asyncio.ensure_future(wait(store, timeout_s=10))
    await asyncio.sleep(0)
    await store.accept(a_delivery())
    assert await waiting


async def test_a_commit_between_looking_and_waiting_is_not_lost(store):
    assert await claim(store, Kind.RUN) == ()
    await asyncio.ensure_future(store.write(lambda tx: tx.add_run(a_run())))
    assert await wait(store)
    assert len(await claim(store, Kind.RUN)) == 1


async def test_every_waiter_hears_of_a_commit(store):
    waiting = [asyncio.ensure_future(wait(store, timeout_s=10)) for _ in range(3)]
    await asyncio.sleep(0)
    await store.write(lambda tx: tx.add_run(a_run()))
    assert await asyncio.gather(*waiting) == [True] * 3


async def test_looking_for_work_in_vain_wakes_nobody(store):
    await store.write(lambda tx: tx.add_run(a_run(due_at=None)))
    assert await claim(store, Kind.RUN) == ()
    assert not await wait(store)


async def test_taking_and_renewing_a_lease_wakes_nobody(store):
    await store.write(lambda tx: tx.add_run(a_run()))
    await store.read(lambda tx: tx.run("run-1"))
    lease = await claim_one(store, Kind.RUN)
    await store.write(lambda tx: tx.renew(Kind.RUN, [lease.id], lease.token, length=(tx.now() - tx.now())))
    assert not await wait(store)


@pytest.mark.parametrize(("again_s", "rings"), [(60, False), (0.2, True)])
async def test_giving_a_row_back_wakes_only_who_must_look_soon(store, again_s, rings):
    await store.write(lambda tx: tx.add_run(a_run()))
    lease = await claim_one(store, Kind.RUN)
    await store.write(lambda tx: tx.release(lease, due_at=tx.now() + timedelta(seconds=again_s)))
    assert await wait(store) is rings


async def test_a_rolled_back_transaction_wakes_nobody(store):
    def fail(tx):
        tx.add_run(a_run())
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(fail)
    assert not await wait(store)


# beside a running store


async def test_the_chain_is_verified_while_the_store_is_open(store, store_url):
    report = await asyncio.to_thread(verify_audit, store_url)
    assert (report.sealed, report.first_bad) == (0, None)


async def test_secrets_do_not_show(store):
    shown = repr(store._here.identity) + repr(store) + repr(vars(store))
    assert repr(store.install_secret) not in shown


def test_a_delivery_has_the_fields_that_the_hot_path_writes():
    assert set(Delivery.__dataclass_fields__) == {
        "guid", "event", "action", "installation_id", "repo", "number", "body", "received_at",
    }  # fmt: skip


@pytest.mark.parametrize("before", [None, 0o644])
async def test_the_file_is_for_its_owner_only(tmp_path, clock, chance, before):
    path = tmp_path / "gpurun.sqlite"
    if before is not None:
        path.touch()
        path.chmod(before)
    async with SqliteStore(path, clock=clock, chance=chance) as store:
        await store.write(lambda tx: tx.ensure_account("docker"))
        modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        assert len(list(tmp_path.iterdir())) == 4  # the file, its log and its index, and our lock
    assert modes == {0o600}
