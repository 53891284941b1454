"""What agents append: checked, exactly once, and many in one commit."""

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from gpurun.adapters.store import SqliteStore
from gpurun.domain.errors import Bug, Revoked, UnknownToken
from gpurun.domain.run import AttemptState, Result, ResultKind
from gpurun.domain.stream import Piece, StreamName
from tests.unit.adapters.store.samples import an_attempt

TOKEN = "t" * 64


def a_piece(data=b"hello", offset=0, *, attempt_id="attempt-1", token=TOKEN):
    return Piece(attempt_id=attempt_id, token_sha256=token, name=StreamName.LOG, offset=offset, data=data)


def a_live(id="attempt-1", **changes):
    return an_attempt(id, **({"state": AttemptState.LIVE, "token_sha256": TOKEN, "name": id, "run_id": id} | changes))


async def add(store, *attempts):
    await store.write(lambda tx: [tx.add_attempt(attempt) for attempt in attempts])


async def read(store, attempt_id="attempt-1"):
    return await store.read(lambda tx: tx.read_stream(attempt_id, StreamName.LOG, offset=0, max_bytes=2**20))


async def test_a_piece_is_taken_at_the_end_of_its_stream_only(store):
    attempt = a_live()
    await add(store, attempt)
    first = await store.append(a_piece(b"hello "))
    assert (first.took, first.end.next, first.end.durable) == (True, 6, 6)
    assert (first.stop, first.hard_deadline) == (False, attempt.hard_deadline)
    again = await store.append(a_piece(b"hello "))
    assert (again.took, again.end.next) == (False, 6)
    ahead = await store.append(a_piece(b"!", offset=7))
    assert (ahead.took, ahead.end.next) == (False, 6)
    assert (await store.append(a_piece(b"world", offset=6))).end.next == 11
    assert await read(store) == b"hello world"


async def test_a_stream_that_was_never_begun_ends_at_zero(store):
    await add(store, a_live())
    answer = await store.append(a_piece(b"x", offset=3))
    assert (answer.took, answer.end.next) == (False, 0)


@pytest.mark.parametrize("token", ["", "u" * 64])
async def test_a_wrong_token_appends_nothing(store, token):
    await add(store, a_live())
    with pytest.raises(UnknownToken):
        await store.append(a_piece(token=token))
    with pytest.raises(UnknownToken):
        await store.append(a_piece(attempt_id="attempt-9"))
    assert await read(store) == b""


async def test_an_attempt_that_nobody_claimed_has_no_token_at_all(store):
    await add(store, a_live(token_sha256=""))
    with pytest.raises(UnknownToken):
        await store.append(a_piece(token=""))


@pytest.mark.parametrize("state", [AttemptState.UNSURE, AttemptState.DESTROYING, AttemptState.GONE, AttemptState.VOID])
async def test_nothing_is_appended_after_the_end(store, state):
    await add(store, a_live(state=state))
    with pytest.raises(Revoked):
        await store.append(a_piece())


async def test_nothing_is_appended_after_the_result(store):
    await add(store, a_live())
    await store.append(a_piece())
    result = Result(kind=ResultKind.PASSED, exit_code=0)
    await store.write(lambda tx: tx.set_result("attempt-1", result))
    with pytest.raises(Revoked):
        await store.append(a_piece(b"late", offset=5))
    assert await read(store) == b"hello"


async def test_whoever_is_told_to_stop_hears_it_with_every_answer(store, clock):
    await add(store, a_live(stop_asked_at=clock.now()))
    assert (await store.append(a_piece())).stop


async def test_contact_is_kept_to_five_seconds(store, clock):
    seen = clock.now()
    await add(store, replace(a_live(), last_seen_at=seen))
    clock.advance(seconds=4)
    await store.append(a_piece(b"a"))
    assert await last_seen(store) == seen
    clock.advance(seconds=1)
    await store.append(a_piece(b"b", offset=1))
    assert await last_seen(store) == seen + timedelta(seconds=5)


async def last_seen(store):
    return await store.read(lambda tx: tx.attempt("attempt-1").last_seen_at)


async def test_pieces_of_many_agents_share_a_commit_and_each_has_its_own_outcome(tmp_path, clock, chance, monkeypatch):
    async with SqliteStore(tmp_path / "a.sqlite", clock=clock, chance=chance) as store:
        names = [f"attempt-{number:02}" for number in range(40)]
        await add(store, *(a_live(name) for name in names))
        groups, busy, go = [], threading.Event(), threading.Event()
        append = store._here.database.append

        def block(tx):
            busy.set()
            assert go.wait(10)

        def counted(pieces):
            groups.append(pieces)
            return append(pieces)

        blocked = asyncio.ensure_future(store.write(block))
        await asyncio.to_thread(busy.wait, 10)
        monkeypatch.setattr(store._here.database, "append", counted)
        token = {name: "wrong" if name == "attempt-07" else TOKEN for name in names}
        appends = [store.append(a_piece(name.encode(), attempt_id=name, token=token[name])) for name in names]
        waiting = asyncio.gather(*appends, return_exceptions=True)
        await asyncio.sleep(0)
        go.set()
        await blocked
        answers = await waiting
        assert len(groups) == 1
        refused = [name for name, answer in zip(names, answers, strict=True) if isinstance(answer, UnknownToken)]
        assert refused == ["attempt-07"]
        assert await read(store, "attempt-39") == b"attempt-39"
        assert await read(store, "attempt-07") == b""


async def test_pieces_of_one_agent_in_one_commit_keep_their_order(store):
    await add(store, a_live())
    pieces = [a_piece(b"%03d" % number, offset=3 * number) for number in range(50)]
    answers = await asyncio.gather(*map(store.append, pieces))
    assert all(answer.took for answer in answers)
    assert await read(store) == b"".join(piece.data for piece in pieces)


async def test_a_piece_that_no_row_can_hold_is_undone_and_takes_no_other_along(store):
    await add(store, a_live("attempt-1"), a_live("attempt-2"))
    await store.write(lambda tx: tx.append("attempt-2", StreamName.LOG, 0, b"12345"))
    await store.write(lambda tx: tx._connection.exec_driver_sql("UPDATE stream SET next = 0"))
    answers = await asyncio.gather(
        store.append(a_piece(b"one", attempt_id="attempt-1")),
        store.append(a_piece(b"two", attempt_id="attempt-2")),
        return_exceptions=True,
    )
    assert answers[0].end.next == 3
    assert isinstance(answers[1], Bug)
    assert await read(store, "attempt-1") == b"one"
    assert await store.read(lambda tx: tx.stream_end("attempt-2", StreamName.LOG).next) == 0
    assert (await store.append(a_piece(b"!", attempt_id="attempt-1", offset=3))).took
