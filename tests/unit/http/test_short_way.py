"""Appends that go past ASGI say and do the same as those that go through it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gpurun.domain.errors import Transient
from gpurun.domain.run import AttemptState, Result, ResultKind
from gpurun.domain.stream import StreamName
from gpurun.http.agent_api import AgentApi
from gpurun.http.short_way import ShortWay, WholeAppend, whole_append
from gpurun.http.uplink import UnixUplinks
from gpurun.run import tokens
from gpurun_agent import protocol
from tests.unit.http.test_uplink import _answer, _connected, talk
from tests.unit.http.world import ATTEMPT_ID, INSTALL_SECRET, a_run, an_attempt, services_over

TOKEN = tokens.run_token(INSTALL_SECRET, ATTEMPT_ID, "boot-1")


@pytest.fixture
def store_url(tmp_path):
    return str(tmp_path / "gpurun.sqlite")


class Counted:
    """The agent API, and how many requests it saw."""

    def __init__(self, app):
        self.app, self.count = app, 0

    async def __call__(self, scope, receive, send):
        self.count += 1
        await self.app(scope, receive, send)


@pytest.fixture
async def api(store, clock):
    live = {"state": AttemptState.LIVE, "boot_id": "boot-1", "token_sha256": tokens.token_sha256(TOKEN)}

    def write(tx):
        tx.add_run(a_run())
        tx.add_attempt(an_attempt(**live))

    await store.write(write)
    return AgentApi(services_over(store, clock, None))


@pytest.fixture
async def usual(api):
    return Counted(api)


@pytest.fixture
async def address(api, usual, chance, tmp_path):
    uplinks = UnixUplinks(usual, folder=tmp_path / "up", chance=chance, take=api.appends.at_once)
    yield (await uplinks.open(ATTEMPT_ID, "docker")).address
    await uplinks.aclose()


@pytest.fixture
def heard(monkeypatch):
    """What the server's ends of connections heard, one entry for each time; the last one is empty."""
    pieces = []

    def data_received(self, data, real=ShortWay.data_received):
        pieces.append(data)
        real(self, data)

    def connection_lost(self, exc, real=ShortWay.connection_lost):
        real(self, exc)
        pieces.append(b"")

    monkeypatch.setattr(ShortWay, "data_received", data_received)
    monkeypatch.setattr(ShortWay, "connection_lost", connection_lost)
    return pieces


def put(offset, data, *, token=TOKEN, more=""):
    return "PUT", f"streams/log?offset={offset}{more}", token, data


def raw(offset, data):
    head = (
        f"PUT /agent/v1/streams/log?offset={offset} HTTP/1.1\r\nHost: bot\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def log_of(store):
    return await store.read(lambda tx: tx.read_stream(ATTEMPT_ID, StreamName.LOG, offset=0, max_bytes=2**20))


async def test_an_agent_that_was_heard_before_is_answered_the_same(store, address, usual):
    first, second, again, ahead = await talk(
        address, put(0, b"one\n"), put(4, b"two\n"), put(4, b"two\n"), put(9, b"x")
    )
    assert usual.count == 1
    assert [status for status, _ in (first, second, again, ahead)] == [200, 200, 409, 409]
    assert dict(protocol.decode(second[1])) == dict(protocol.decode(first[1])) | {"next": b"8", "durable": b"8"}
    assert dict(protocol.decode(again[1]))["next"] == b"8"
    assert await log_of(store) == b"one\ntwo\n"


async def test_secrets_are_masked_and_what_may_become_one_waits(store, address, usual):
    tag = TOKEN.partition(".")[2].encode()
    _, whole, half = await talk(address, put(0, b"a\n"), put(2, tag + b"\n"), put(46, b"b\n" + tag[:20]))
    assert usual.count == 1
    assert dict(protocol.decode(whole[1]))["next"] == b"46"
    assert dict(protocol.decode(half[1]))["next"] == b"48"
    assert await log_of(store) == b"a\n" + b"*" * len(tag) + b"\nb\n"


async def test_the_last_append_and_a_wrong_token_go_the_usual_way(store, address, usual):
    answers = await talk(address, put(0, b".\n"), put(2, b"b", token=TOKEN[:-1] + "!"), put(2, b"c", more="&end=1"))
    assert [status for status, _ in answers] == [200, 401, 200]
    assert usual.count == 3
    assert await log_of(store) == b".\nc"


async def test_more_than_the_quota_is_refused(address, usual):
    answers = await talk(address, put(0, b"a"), put(999_999_999, b"b"))
    assert [status for status, _ in answers] == [200, 413]


async def test_an_agent_whose_attempt_is_over_is_told_so(store, address, usual):
    await talk(address, put(0, b"a"))
    await store.write(lambda tx: tx.set_result(ATTEMPT_ID, Result(kind=ResultKind.PASSED, exit_code=0)))
    ((status, body),) = await talk(address, put(1, b"b"))
    assert usual.count == 1
    assert (status, body) == (410, b"The attempt is over.\n")


async def test_a_store_that_is_busy_says_when_to_come_again(api, address, store, monkeypatch):
    await talk(address, put(0, b"a"))

    async def busy(_piece):
        raise Transient("All connections are busy.")

    monkeypatch.setattr(store, "append", busy)
    reader, writer = await _connected(Path(address) / "bot.sock")
    writer.write(raw(1, b"b"))
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 2\r\n" in head
    writer.close()


async def test_what_fails_after_the_commit_is_answered_too(api, address, monkeypatch):
    await talk(address, put(0, b".\n"))

    def broken(*_):
        raise ArithmeticError

    with monkeypatch.context() as patched:
        patched.setattr(api.appends, "_told", broken)
        async with asyncio.timeout(5):
            assert await talk(address, put(2, b".\n")) == [(500, b"The server failed; try again.\n")]
    assert [status for status, _ in await talk(address, put(4, b".\n"))] == [200]


async def test_a_request_in_parts_and_two_at_once_are_answered_in_order(store, address, heard):
    reader, writer = await _connected(Path(address) / "bot.sock")
    writer.write(raw(0, b"1\n"))
    assert (await _answer(reader))[0] == 200
    parts = [raw(2, b"2\n")[:30], raw(2, b"2\n")[30:-1], b"\n"]
    for part in parts:
        await _send(writer, part, heard)
    assert heard == [raw(0, b"1\n"), *parts]
    assert (await _answer(reader))[0] == 200
    writer.write(raw(4, b"3\n") + raw(6, b"4\n"))
    writer.write(raw(8, b"5\n"))
    assert [(await _answer(reader))[0] for _ in range(3)] == [200, 200, 200]
    assert await log_of(store) == b"1\n2\n3\n4\n5\n"
    writer.close()


async def test_what_comes_while_an_append_waits_is_answered_after_it(api, chance, tmp_path, heard):
    waiting = []
    uplinks = UnixUplinks(api, folder=tmp_path / "up", chance=chance, take=lambda *asked: not waiting.append(asked))
    address = (await uplinks.open(ATTEMPT_ID, "docker")).address
    reader, writer = await _connected(Path(address) / "bot.sock")
    await _send(writer, raw(0, b"a"), heard)
    await _send(writer, raw(1, b"b"), heard)
    assert len(waiting) == 1
    waiting[0][2](200, b"first", ())
    assert await _answer(reader) == (200, b"first")
    assert waiting[1][:2] == (ATTEMPT_ID, WholeAppend(StreamName.LOG, 1, TOKEN, b"b"))
    await uplinks.aclose()
    waiting[1][2](200, b"second", ())
    assert await _answer(reader) == (200, b"second"), "an append that was taken is answered before the end"
    assert await reader.read() == b""
    writer.close()


async def test_nobody_is_left_to_hear_the_answer(api, chance, tmp_path, heard):
    waiting = []
    uplinks = UnixUplinks(api, folder=tmp_path / "up", chance=chance, take=lambda *asked: not waiting.append(asked))
    address = (await uplinks.open(ATTEMPT_ID, "docker")).address
    _, writer = await _connected(Path(address) / "bot.sock")
    await _send(writer, raw(0, b"a"), heard)
    writer.close()
    await _until(lambda: heard[-1] == b"")
    waiting[0][2](200, b"", ())
    state = uplinks._served[ATTEMPT_ID].state
    assert (state.total_requests, state.connections) == (0, set()), "nothing was sent to nobody"
    reader, writer = await _connected(Path(address) / "bot.sock")
    await _send(writer, raw(1, b"b"), heard)
    waiting[1][2](200, b"second", ())
    assert await _answer(reader) == (200, b"second")
    assert (state.total_requests, len(waiting)) == (1, 2)
    writer.close()
    await uplinks.aclose()


async def _send(writer, data, heard):
    """Until the server has heard it."""
    writer.write(data)
    await _until(lambda: heard and heard[-1] == data)


async def _until(holds):
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0)


WHOLE = raw(7, b"line\n")


@pytest.mark.parametrize(
    "data",
    [
        WHOLE[:-1],
        WHOLE + b"x",
        WHOLE.replace(b"PUT", b"POST"),
        WHOLE.replace(b"log?", b"other?"),
        WHOLE.replace(b"=7", b"=-7"),
        WHOLE.replace(b"=7", b"=7&end=1"),
        WHOLE.replace(b"1.1", b"1.0"),
        WHOLE.replace(b"Host: bot", b"Host: bot\r\nTransfer-Encoding: chunked"),
        WHOLE.replace(b"Host: bot", b"Host: bot\r\nContent-Length: 5"),
        WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        WHOLE.replace(b"\r\n", b"\n"),
        WHOLE.replace(b"Bearer ", b"Basic "),
        b"",
    ],
)
def test_anything_but_the_one_form_is_left_to_http(data):
    assert whole_append(data) is None


def test_the_form_is_what_the_agent_sends():
    assert whole_append(WHOLE) == WholeAppend(StreamName.LOG, 7, TOKEN, b"line\n")
