import asyncio
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from gpurun.adapters.store import SqliteStore
from gpurun.domain.delivery import InboxRow, InboxState
from gpurun.domain.errors import Bug, GpurunError
from gpurun.ports.store import Kind
from tests.fakes.clock import START
from tests.unit.adapters.store.samples import a_delivery, claim, claim_one


async def test_an_accepted_delivery_is_read_as_it_was_sent(store):
    delivery = a_delivery(body=bytes(range(256)))
    assert await store.accept(delivery)
    lease = await claim_one(store, Kind.INBOX)
    row = await store.read(lambda tx: tx.inbox(lease.id))
    assert row == InboxRow(id=int(lease.id), delivery=delivery, state=InboxState.NEW, tries=0)


async def test_a_guid_is_accepted_once(store):
    assert await store.accept(a_delivery())
    assert not await store.accept(a_delivery(body=b"other"))
    assert len(await claim(store, Kind.INBOX)) == 1


async def test_deliveries_of_one_pull_request_come_one_after_the_other(store):
    for guid, number in [("a", 1), ("b", 1), ("c", 2), ("d", 1)]:
        await store.accept(a_delivery(guid, number=number))
    first, other = await claim(store, Kind.INBOX)
    assert [first.id, other.id] == ["1", "3"]
    assert await claim(store, Kind.INBOX) == ()
    assert await store.write(lambda tx: tx.settle_inbox(first, InboxState.DONE, "run created"))
    (second,) = await claim(store, Kind.INBOX)
    assert second.id == "2"


async def test_a_delivery_that_is_tried_again_later_holds_back_the_next_one(store, clock):
    await store.accept(a_delivery("a"))
    await store.accept(a_delivery("b"))
    lease = await claim_one(store, Kind.INBOX)
    await store.write(lambda tx: tx.failed(lease, "GitHub is down", due_at=START + timedelta(minutes=1)))
    assert await claim(store, Kind.INBOX) == ()
    clock.advance(minutes=1)
    assert [lease.id for lease in await claim(store, Kind.INBOX)] == ["1"]


@pytest.mark.parametrize("state", [InboxState.DONE, InboxState.IGNORED, InboxState.POISON])
async def test_a_settled_delivery_keeps_its_note_and_stays_settled(store, state):
    await store.accept(a_delivery())
    lease = await claim_one(store, Kind.INBOX)
    assert await store.write(lambda tx: tx.settle_inbox(lease, state, "why"))
    assert not await store.write(lambda tx: tx.settle_inbox(lease, InboxState.DONE, "again"))
    row = await store.read(lambda tx: tx.inbox(lease.id))
    assert (row.state, row.note) == (state, "why")


async def test_one_line_of_a_comment_belongs_to_the_first_delivery_that_takes_it(store):
    async def take(comment_id, index, inbox_id, repo="octo/models"):
        return await store.write(lambda tx: tx.take_command(repo, comment_id, index, inbox_id))

    assert await take(900, 0, "1")
    assert await take(900, 0, "1")
    assert not await take(900, 0, "2")
    assert await take(900, 1, "2")
    assert await take(901, 0, "2")
    assert await take(900, 0, "2", repo="octo/other")


async def test_a_missing_row_is_a_bug(store):
    with pytest.raises(Bug):
        await store.read(lambda tx: tx.inbox("1"))


async def test_a_delivery_that_no_row_can_hold_fails_alone(store):
    good = [a_delivery(f"good-{number}") for number in range(20)]
    monstrous = replace(a_delivery("monstrous"), number=2**70)
    answers = await asyncio.gather(*map(store.accept, [*good, monstrous, *good]), return_exceptions=True)
    assert answers[:20] == [True] * 20
    assert answers[21:] == [False] * 20
    assert isinstance(answers[20], GpurunError)


async def test_text_that_postgres_cannot_hold_is_accepted(store):
    assert await store.accept(a_delivery(action="nul \x00", repo="lone \udc80"))
    row = await store.read(lambda tx: tx.inbox("1"))
    assert (row.delivery.action, row.delivery.repo) == ("nul \ufffd", "lone \ufffd")


async def test_large_deliveries_do_not_share_a_commit_without_end(tmp_path, clock, chance, monkeypatch):
    async with SqliteStore(tmp_path / "a.sqlite", clock=clock, chance=chance) as store:
        groups, busy, go = [], threading.Event(), threading.Event()
        accept = store._here.database.accept

        def block(tx):
            busy.set()
            assert go.wait(10)

        def counted(deliveries):
            groups.append(len(deliveries))
            return accept(deliveries)

        blocked = asyncio.ensure_future(store.write(block))
        await asyncio.to_thread(busy.wait, 10)
        monkeypatch.setattr(store._here.database, "accept", counted)
        monkeypatch.setattr("gpurun.adapters.store.writer.GROUP_BYTES", 2_000)
        waiting = asyncio.gather(*(store.accept(a_delivery(f"g{n}", body=b"x" * 1_000)) for n in range(7)))
        await asyncio.sleep(0)
        go.set()
        await blocked
        assert all(await waiting)
        assert groups == [2, 2, 2, 1]
