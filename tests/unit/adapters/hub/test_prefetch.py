"""Files ahead of their use: in ranges, continued, once for all who want them, and never wrong."""

from __future__ import annotations

import asyncio
import logging
import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from gpurun.adapters.clock import SystemClock
from gpurun.adapters.hub import cache as cache_module
from gpurun.adapters.hub import part as part_module
from gpurun.adapters.hub import prefetch as prefetch_module
from gpurun.adapters.hub import ranges as ranges_module
from gpurun.domain.errors import HubUnavailable, PinNotFound
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelPin, ModelSpec
from tests.fakes.lfs import pointer_of

ID = "acme/tiny"
NAME = "weights.safetensors"
RANGE = 64 * 1024
DATA = os.urandom(10 * RANGE + 17)
FILES = {NAME: DATA, "other.bin": DATA[:1000], "config.json": b"{}"}
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    for module in (part_module, prefetch_module):
        monkeypatch.setattr(module, "RANGE_BYTES", RANGE)
    monkeypatch.setattr(ranges_module, "PIECE_BYTES", 10_000)


class NotedClock(SystemClock):
    """Short sleeps, counted: nobody sleeps here but who waits for somebody else's download."""

    def __init__(self):
        self.n_sleeps = 0

    async def sleep(self, seconds):
        self.n_sleeps += 1
        await super().sleep(min(seconds, 0.01))


@pytest.fixture
def clock():
    return NotedClock()


async def until(reached):
    with anyio.fail_after(WAIT_S):
        while not reached():
            await asyncio.sleep(0.01)


@pytest.fixture
def prefetch_until(monkeypatch):
    """`prefetch_until(hub, pin, reached)`: its time is over once that holds, however slow the machine is."""
    real = anyio.move_on_after

    async def prefetch(hub, pin, reached):
        scopes = []

        def noted(delay_s):
            scopes.append(real(delay_s))
            return scopes[-1]

        async def end():
            await until(reached)
            scopes[0].cancel()

        with monkeypatch.context() as patch:
            patch.setattr(anyio, "move_on_after", noted)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(end)
                return await hub.prefetch([pin], 10 * WAIT_S)

    return prefetch


@pytest.fixture
async def pin(fake, make_hub) -> ModelPin:
    revision = Revision(fake.add_model(ID, FILES))
    found = await make_hub().resolve(ModelSpec(id=ID, revision=revision))
    fake.requests.clear()
    return found


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "cache/acme--tiny"


@pytest.fixture
def weights(pin, folder) -> Path:
    """Where they will lie."""
    return folder / next(file.sha256 for file in pin.files if file.path == NAME)


@pytest.fixture
async def without_small_files(make_hub, pin):
    """The others are there before."""
    others = tuple(file for file in pin.files if file.path != NAME)
    assert (await make_hub().prefetch([replace(pin, files=others)], WAIT_S)).ready


def all_stall_at(weights, n_bytes):
    """Whether each connection has brought so much of its range."""
    counts = weights.with_name(f"{weights.name}.part.ranges")
    packed = counts.read_bytes() if counts.exists() else b""
    found = [count for (count,) in struct.iter_unpack("<Q", packed) if count]
    return found == [n_bytes] * ranges_module.CONNECTIONS


def ranges(fake) -> list[str | None]:
    return [request.range for request in fake.seen(f"/repos/{ID}") if request.path.endswith(NAME)]


async def test_all_files_are_there_and_reading_them_asks_nobody(fake, make_hub, pin, folder):
    hub = make_hub()
    done = await hub.prefetch([pin], WAIT_S)
    assert (done.ready, done.bytes_total, done.bytes_missing) == (True, len(DATA) + 1000 + 2, 0)
    fake.requests.clear()
    for file in pin.files:
        assert b"".join([piece async for piece in hub.open(pin, file)]) == FILES[file.path]
    assert (await make_hub().prefetch([pin], WAIT_S)).ready
    assert fake.requests == []
    assert not list(folder.glob("*.part*"))


async def test_a_file_that_several_pins_want_counts_once(fake, make_hub, pin):
    other = Revision(fake.add_model(ID, {**FILES, "copy.safetensors": DATA, "more.bin": DATA[:7]}))
    hub = make_hub()
    pins = [pin, await hub.resolve(ModelSpec(id=ID, revision=other))]
    expected = len(DATA) + 1000 + 2 + 7
    before = await hub.prefetch(pins, 0)
    assert (before.bytes_total, before.bytes_missing) == (expected, expected - 2)  # config.json came with the list
    after = await hub.prefetch(pins, WAIT_S)
    assert (after.ready, after.bytes_total, after.bytes_missing) == (True, expected, 0)


async def test_a_large_file_comes_in_ranges_from_one_signed_address(fake, make_hub, pin):
    assert (await make_hub().prefetch([pin], WAIT_S)).ready
    expected = [f"bytes={at}-{min(at + RANGE, len(DATA)) - 1}" for at in range(0, len(DATA), RANGE)]
    assert sorted(ranges(fake)) == sorted(expected)
    assert len([one for one in fake.seen("/resolve/", method="HEAD") if one.path.endswith(NAME)]) == 1


async def test_a_broken_range_goes_on_where_it_stopped(fake, make_hub, pin, weights):
    fake.cut(ID, NAME, after=1000)
    assert (await make_hub().prefetch([pin], WAIT_S)).ready
    assert weights.read_bytes() == DATA
    from_their_start = tuple(f"bytes={at}-" for at in range(0, len(DATA), RANGE))
    assert len([told for told in ranges(fake) if not told.startswith(from_their_start)]) == 1


@pytest.mark.usefixtures("without_small_files")
async def test_what_came_before_the_time_was_over_is_not_fetched_again(fake, make_hub, pin, weights, prefetch_until):
    fake.stall(ID, NAME, after=30_000)
    early = await prefetch_until(make_hub(), pin, lambda: all_stall_at(weights, 30_000))
    assert not early.ready
    assert early.files_missing == 1
    assert 0 < early.bytes_missing < len(DATA)
    fake.models[ID].stalled_at.clear()
    fake.requests.clear()
    assert (await make_hub().prefetch([pin], WAIT_S)).ready
    assert weights.read_bytes() == DATA
    assert "bytes=30000-65535" in ranges(fake)


async def test_b089_a_killed_process_leaves_its_pieces_and_no_lock(fake, make_hub, pin, weights, prefetch_until, clock):
    fake.stall(ID, NAME, after=30_000)
    program = f"""
import anyio
from pathlib import Path
from pydantic import SecretStr
from gpurun.adapters.clock import SystemClock
from gpurun.adapters.hub import HuggingFaceHub, part, prefetch, ranges
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelSpec

part.RANGE_BYTES = prefetch.RANGE_BYTES = {RANGE}
ranges.PIECE_BYTES = 10_000

async def main():
    hub = HuggingFaceHub({fake.url!r}, SecretStr(""), Path({str(weights.parents[1])!r}), SystemClock())
    await hub.prefetch([await hub.resolve(ModelSpec(id={ID!r}, revision=Revision({pin.revision!r})))], 600)

anyio.run(main)
"""
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            await until(lambda: all_stall_at(weights, 30_000) or process.poll() is not None)
            assert process.poll() is None
            waiting = await prefetch_until(make_hub(), pin, lambda: clock.n_sleeps > 1)
            assert (waiting.ready, len(ranges(fake))) == (False, 4)  # it is the other's
        finally:
            process.kill()
    fake.models[ID].stalled_at.clear()
    fake.requests.clear()
    assert (await make_hub().prefetch([pin], WAIT_S)).ready
    assert weights.read_bytes() == DATA
    assert "bytes=30000-65535" in ranges(fake)


async def test_what_comes_between_a_look_and_the_lock_is_not_fetched_again(fake, make_hub, pin, weights, monkeypatch):
    other, take = make_hub(), prefetch_module.take_part

    async def take_late(cache, file, asked):
        if file.path != NAME:
            return await take(cache, file, asked)
        monkeypatch.setattr(prefetch_module, "take_part", take)
        assert (await other.prefetch([pin], WAIT_S)).ready
        return await take(cache, file, asked)

    monkeypatch.setattr(prefetch_module, "take_part", take_late)
    assert (await make_hub().prefetch([pin], WAIT_S)).ready
    assert len(ranges(fake)) == 11
    assert [path.name for path in weights.parent.glob("*.part*")] == []


async def test_several_that_want_a_file_download_it_once(fake, make_hub, pin, weights):
    hubs = [make_hub(), make_hub()]
    done = await asyncio.gather(*(hub.prefetch([pin], WAIT_S) for hub in (*hubs, *hubs)))
    assert all(one.ready for one in done)
    assert weights.read_bytes() == DATA
    assert len(ranges(fake)) == 11
    assert len(fake.seen("/repos/")) == 12


@pytest.mark.usefixtures("without_small_files")
async def test_a_reader_streams_beside_it(fake, make_hub, pin, prefetch_until, clock):
    hub = make_hub()
    file = next(file for file in pin.files if file.path == NAME)
    stream = hub.open(pin, file)
    got = await anext(stream)
    done = await prefetch_until(hub, pin, lambda: clock.n_sleeps > 1)
    assert (done.ready, done.files_missing) == (False, 1)
    got += b"".join([piece async for piece in stream])
    assert got == DATA
    assert (await hub.prefetch([pin], WAIT_S)).ready
    assert len(ranges(fake)) == 1


# --- wrong bytes


async def test_b092_wrong_bytes_of_the_right_size_are_fetched_once_more_and_never_kept(fake, make_hub, pin, weights):
    fake.corrupt(ID, NAME)
    with pytest.raises(PinNotFound, match=f"{NAME} of {ID}.*the hub's list says sha256 {weights.name}"):
        await make_hub().prefetch([pin], WAIT_S)
    assert len(ranges(fake)) == 22
    assert not list(weights.parent.glob(f"{weights.name}*"))
    fake.repair(ID, NAME)
    assert (await make_hub().prefetch([pin], WAIT_S)).ready


async def test_b092_a_wrong_file_in_the_cache_is_replaced(fake, make_hub, pin, weights):
    assert (await make_hub().prefetch([pin], WAIT_S)).ready
    weights.write_bytes(bytes([DATA[0] ^ 1]) + DATA[1:])
    assert (await make_hub().prefetch([pin], WAIT_S)).ready
    assert weights.read_bytes() == DATA


@pytest.mark.parametrize("left", [b"x" * 1000, b"x" * len(DATA)])
async def test_b092_wrong_pieces_of_an_earlier_download_cost_one_more(fake, make_hub, pin, weights, left):
    weights.with_name(f"{weights.name}.part").write_bytes(left)
    assert (await make_hub().prefetch([pin], WAIT_S)).ready
    assert weights.read_bytes() == DATA


async def test_b092_there_must_be_room_for_all_files(fake, make_hub, pin, monkeypatch):
    usage = cache_module.shutil._ntuple_diskusage(100 << 20, 40 << 20, (64 << 20) + len(DATA) + 10)
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(HubUnavailable, match="64 MiB free"):
        await make_hub().prefetch([pin], WAIT_S)
    assert fake.requests == []
    one = replace(pin, files=tuple(file for file in pin.files if file.path == NAME))
    assert (await make_hub().prefetch([one], WAIT_S)).ready


def test_b092_who_waits_for_room_keeps_no_descriptor(tmp_path, monkeypatch):
    cache = cache_module.RepoCache(tmp_path)
    part = cache.part("a" * 64, len(DATA))
    part.write(DATA[:1000])
    part.by_ranges()
    part.close()
    usage = cache_module.shutil._ntuple_diskusage(100 << 20, 40 << 20, 0)
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(HubUnavailable, match="0 MiB free"):
        cache.part("a" * 64, len(DATA))
    opened = [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]
    assert not [path for path in opened if path.startswith(f"{tmp_path}/")]


async def test_b092_a_disk_that_fills_up_is_transient(make_hub, pin, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(part_module.Part, "write_at", full)
    with pytest.raises(HubUnavailable, match="No space left on device"):
        await make_hub().prefetch([pin], WAIT_S)


async def test_b091_an_lfs_pointer_in_the_place_of_weights(fake, make_hub, pin, weights):
    fake.models[ID].pointers.add(NAME)
    assert len(pointer_of(weights.name, len(DATA))) < 200
    with pytest.raises(PinNotFound, match=f"{NAME} of {ID} at {pin.revision} is an LFS pointer, not the file"):
        await make_hub().prefetch([pin], WAIT_S)


# --- the store


async def test_files_in_xet_come_by_the_plain_way(fake, make_hub, folder):
    fake.has_xet = True
    spec = ModelSpec(id=ID, revision=Revision(fake.add_model(ID, FILES)))
    hub = make_hub()
    assert (await hub.prefetch([await hub.resolve(spec)], WAIT_S)).ready
    assert not fake.seen("xet")


async def test_an_address_that_became_too_old_is_asked_for_again(fake, make_hub, pin, weights):
    fake.fail_next(403, part=f"tiny/{pin.revision}/{NAME}", times=4)
    assert (await make_hub().prefetch([pin], WAIT_S)).ready
    assert weights.read_bytes() == DATA


async def test_a_store_without_ranges(fake, make_hub, pin, weights):
    fake.ignores_range = True
    assert (await make_hub().prefetch([pin], WAIT_S)).ready
    assert weights.read_bytes() == DATA


async def test_behind_a_proxy_a_file_comes_over_one_connection(fake, make_hub, pin, weights, monkeypatch):
    monkeypatch.setattr(prefetch_module, "_has_proxy", lambda _: True)
    assert (await make_hub().prefetch([pin], WAIT_S)).ready
    assert ranges(fake) == [None]


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_signed_addresses_are_in_no_error_and_no_log(fake, make_hub, pin, status, caplog):
    fake.fail_next(status, part="/repos/", times=50)
    with caplog.at_level(logging.DEBUG), pytest.raises((HubUnavailable, PinNotFound)) as caught:
        await make_hub().prefetch([pin], WAIT_S)
    told = [str(caught.value), repr(caught.value.__cause__), repr(caught.value.__context__)]
    told += [record.getMessage() for record in caplog.records if not record.name.startswith("uvicorn")]
    assert not [text for text in told if "Signature" in text]
