import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from gpurun.adapters.store import tables
from gpurun.adapters.store.streams import MAX_CHUNK
from gpurun.domain.errors import WrongOffset
from gpurun.domain.stream import Artifact, StreamEnd, StreamName
from tests.services.postgres import make_store

LOG = StreamName.LOG


async def append(store, offset, data, *, attempt_id="attempt-1", name=LOG):
    return await store.write(lambda tx: tx.append(attempt_id, name, offset, data))


async def read(store, *, attempt_id="attempt-1", name=LOG, offset=0, max_bytes=2**20):
    return await store.read(lambda tx: tx.read_stream(attempt_id, name, offset=offset, max_bytes=max_bytes))


async def end(store, *, name=LOG):
    return await store.read(lambda tx: tx.stream_end("attempt-1", name))


async def test_an_unknown_stream_is_empty(store):
    assert await end(store) == StreamEnd(next=0, durable=0)
    assert await read(store) == b""


async def test_appends_follow_each_other_and_are_durable(store):
    assert await append(store, 0, b"hello ") == StreamEnd(next=6, durable=6)
    assert await append(store, 6, b"world") == StreamEnd(next=11, durable=11)
    assert await end(store) == StreamEnd(next=11, durable=11)
    assert await read(store) == b"hello world"


@pytest.mark.parametrize("offset", [0, 3, 6])
async def test_an_append_elsewhere_is_refused_with_the_right_offset(store, offset):
    await append(store, 0, b"hello")
    with pytest.raises(WrongOffset) as caught:
        await append(store, offset, b"x")
    assert caught.value.next == 5
    assert await read(store) == b"hello"


async def test_a_stream_does_not_start_in_the_middle(store):
    with pytest.raises(WrongOffset) as caught:
        await append(store, 7, b"x")
    assert caught.value.next == 0


async def test_the_log_is_what_the_build_said_and_then_what_the_agent_sent(store):
    await append(store, 0, b"of the job", name=LOG)
    assert await store.read(lambda tx: tx.read_log("attempt-1", offset=0, max_bytes=99)) == b"of the job"
    await append(store, 0, b"built\n", name=StreamName.BUILD)
    whole = b"built\nof the job"
    assert await store.read(lambda tx: tx.log_size("attempt-1")) == len(whole)
    for offset in range(len(whole) + 2):
        for length in (0, 1, 4, 99):
            found = await store.read(lambda tx, at=offset, n=length: tx.read_log("attempt-1", offset=at, max_bytes=n))
            assert found == whole[offset : offset + length]


async def test_an_empty_append_asks_for_the_end(store):
    assert await append(store, 0, b"") == StreamEnd(next=0, durable=0)
    await append(store, 0, b"abc")
    assert await append(store, 3, b"") == StreamEnd(next=3, durable=3)
    with pytest.raises(WrongOffset):
        await append(store, 2, b"")


async def test_a_large_append_is_cut_into_rows(store):
    data = bytes(range(256)) * 1024
    await append(store, 0, data)
    sizes = await store.read(
        lambda tx: tx._connection.execute(select(func.length(tables.chunk.c.data))).scalars().all()
    )
    assert sizes == [MAX_CHUNK] * 4
    assert await read(store, offset=MAX_CHUNK - 3, max_bytes=10) == data[MAX_CHUNK - 3 : MAX_CHUNK + 7]


async def test_streams_do_not_mix(store):
    await append(store, 0, b"log")
    await append(store, 0, b"metrics", name=StreamName.METRICS)
    await append(store, 0, b"other", attempt_id="attempt-2")
    assert [
        await read(store),
        await read(store, name=StreamName.METRICS),
        await read(store, attempt_id="attempt-2"),
    ] == [
        b"log",
        b"metrics",
        b"other",
    ]


@pytest.mark.postgres
async def test_of_two_appends_at_one_offset_one_is_refused(postgres_url, clock, chance):
    async with make_store(postgres_url, clock, chance) as one, make_store(postgres_url, clock, chance) as two:
        for offset in range(20):
            answers = await asyncio.gather(append(one, offset, b"1"), append(two, offset, b"2"), return_exceptions=True)
            assert sorted(type(answer) for answer in answers if isinstance(answer, Exception)) == [WrongOffset]
        assert len(await read(one)) == 20


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    appends=st.lists(
        st.tuples(st.integers(-2, 2), st.binary(max_size=9) | st.just(b"x" * (MAX_CHUNK + 1))), max_size=8
    ),
    start=st.integers(0, 40),
    length=st.integers(0, 40),
)
async def test_a_stream_is_the_bytes_that_were_appended_at_its_end(store, appends, start, length):
    attempt_id = store.attempt_ids = getattr(store, "attempt_ids", "a") + "x"
    model = b""
    for error, data in appends:
        offset = max(0, len(model) + error)
        if offset == len(model):
            model += data
            assert (await append(store, offset, data, attempt_id=attempt_id)).next == len(model)
        else:
            with pytest.raises(WrongOffset) as caught:
                await append(store, offset, data, attempt_id=attempt_id)
            assert caught.value.next == len(model)
    assert await read(store, attempt_id=attempt_id) == model
    part = await read(store, attempt_id=attempt_id, offset=start, max_bytes=length)
    assert part == model[start : start + length]


async def test_artifacts_are_listed_by_path_and_a_repeated_one_replaces_itself(store):
    first = Artifact(path="b.txt", size=3, sha256="1" * 64, blob="k1")
    again = Artifact(path="b.txt", size=4, sha256="2" * 64, blob="k2")
    other = Artifact(path="a.txt", size=2**40, sha256="3" * 64, blob="k3")
    for artifact in (first, other, again):
        await store.write(lambda tx, artifact=artifact: tx.add_artifact("attempt-1", artifact))
    assert await store.read(lambda tx: tx.artifacts("attempt-1")) == (other, again)
    assert await store.read(lambda tx: tx.artifacts("attempt-2")) == ()
