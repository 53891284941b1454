import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import text

from gpurun.domain.run import AuditEntry
from gpurun.ports.store import ChainReport
from tests.fakes.clock import START
from tests.services.postgres import make_store


def an_entry(number=0, **changes):
    values = {"actor": "engine", "kind": "run_created", "subject": "run:run-1", "data": {"number": number, "why": None}}
    return AuditEntry(at=START + timedelta(seconds=number), **{**values, **changes})


async def log(store, count, start=0):
    await store.write(lambda tx: [tx.audit(an_entry(start + number)) for number in range(count)])


async def seal(store, limit=100):
    return await store.write(lambda tx: tx.seal_audit(limit=limit))


async def tamper(store, *statements):
    await store.write(lambda tx: [tx._connection.execute(text(statement)) for statement in statements])


async def test_entries_of_a_subject_come_in_order(store):
    entries = (an_entry(1), an_entry(2, actor="@ada", data={}), an_entry(3))
    await store.write(lambda tx: [tx.audit(entry) for entry in (*entries, an_entry(4, subject="run:other"))])
    assert await store.read(lambda tx: tx.audit_of("run:run-1")) == entries


async def test_an_empty_log_is_whole(store):
    assert await seal(store) == 0
    assert await store.verify_audit() == ChainReport(sealed=0, unsealed=0, first_bad=None)


async def test_sealing_goes_on_where_it_stopped(store):
    await log(store, 5)
    assert [await seal(store, limit=3), await seal(store, limit=3), await seal(store, limit=3)] == [3, 2, 0]
    await log(store, 2, start=5)
    assert await store.verify_audit() == ChainReport(sealed=5, unsealed=2, first_bad=None)
    assert await seal(store) == 2
    assert await store.verify_audit() == ChainReport(sealed=7, unsealed=0, first_bad=None)


async def test_two_chains_of_the_same_rows_end_alike(store, tmp_path, clock, chance):
    async def head(of):
        await log(of, 4)
        await seal(of)
        return await of.read(lambda tx: bytes(tx._connection.execute(text("SELECT seal_hash FROM meta")).scalar_one()))

    async with make_store(str(tmp_path / "other.sqlite"), clock, chance) as other:
        assert await head(store) == await head(other)


@pytest.mark.parametrize(
    ("statements", "position"),
    [
        (["UPDATE audit SET actor = '@eve' WHERE id = 4"], 4),
        (["UPDATE audit SET at = at + 1 WHERE id = 4"], 4),
        (["UPDATE audit SET data = '{}' WHERE id = 1"], 1),
        # actor and kind together still read the same
        (["UPDATE audit SET actor = 'enginer', kind = 'un_created' WHERE id = 4"], 4),
        (["DELETE FROM audit WHERE id = 4"], 4),
        (["DELETE FROM audit WHERE id = 4", "DELETE FROM audit_seal WHERE position = 4"], 4),
        (["DELETE FROM audit WHERE id BETWEEN 3 AND 5", "DELETE FROM audit_seal WHERE position BETWEEN 3 AND 5"], 3),
        (
            [
                "DELETE FROM audit WHERE id = 4",
                "DELETE FROM audit_seal WHERE position = 4",
                "UPDATE audit_seal SET position = position - 1 WHERE position = 5",
                "UPDATE audit_seal SET position = position - 1 WHERE position = 6",
                "UPDATE audit_seal SET position = position - 1 WHERE position = 7",
            ],
            4,
        ),
        (
            [
                "UPDATE audit_seal SET audit_id = 99 WHERE position = 3",
                "UPDATE audit_seal SET audit_id = 3 WHERE position = 4",
                "UPDATE audit_seal SET audit_id = 4 WHERE position = 3",
            ],
            3,
        ),
        (
            [
                "UPDATE audit SET id = 99 WHERE id = 3",
                "UPDATE audit SET id = 3 WHERE id = 4",
                "UPDATE audit SET id = 4 WHERE id = 99",
            ],
            3,
        ),
        (["UPDATE audit_seal SET hash = previous WHERE position = 5"], 5),
        (["DELETE FROM audit WHERE id > 5", "DELETE FROM audit_seal WHERE position > 5"], 6),
        (["UPDATE audit SET sealed = TRUE WHERE id = 8"], 8),
    ],
)
async def test_whatever_is_done_to_the_chain_is_found_where_it_was_done(store, statements, position):
    await log(store, 7)
    await seal(store)
    await log(store, 1, start=7)
    assert (await store.verify_audit()).first_bad is None
    await tamper(store, *statements)
    report = await store.verify_audit()
    assert report.first_bad == position
    assert report.problem


@pytest.mark.postgres
async def test_sealers_in_two_processes_make_one_chain(postgres_url, clock, chance):
    async with make_store(postgres_url, clock, chance) as one, make_store(postgres_url, clock, chance) as two:
        await asyncio.gather(
            *(log(store, 3, start=number) for number in range(10) for store in (one, two)),
            *(seal(store, limit=7) for _ in range(10) for store in (one, two)),
        )
        while await seal(one):
            pass
        assert await two.verify_audit() == ChainReport(sealed=60, unsealed=0, first_bad=None)
