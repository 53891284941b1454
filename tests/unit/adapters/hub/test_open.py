"""Bytes: whole, from an offset, from the cache, after a break, and wrong ones."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
from dataclasses import replace

import httpx
import pytest

from gpurun.adapters.hub import cache as cache_module
from gpurun.adapters.hub import download as download_module
from gpurun.domain.errors import HubUnavailable, PinNotFound
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelFile, ModelPin, ModelSpec

ID = "acme/tiny"
TOKEN = "hf_0123456789SECRET"
NAME = "weights.safetensors"
DATA = os.urandom(700_001)
SHA256 = hashlib.sha256(DATA).hexdigest()
FILE = ModelFile(path=NAME, size=len(DATA), sha256=SHA256, etag=SHA256)


@pytest.fixture
def revision(fake) -> Revision:
    return Revision(fake.add_model(ID, {NAME: DATA, "config.json": b"{}"}))


@pytest.fixture
def cached(tmp_path):
    return tmp_path / "cache/acme--tiny" / SHA256


@pytest.fixture
def part(cached):
    return cached.with_name(cached.name + ".part")


def pinned(revision, file: ModelFile = FILE) -> ModelPin:
    return ModelPin(id=ID, revision=revision, files=(file,))


async def read(hub, revision, *, offset: int = 0, file: ModelFile = FILE) -> bytes:
    pieces = [piece async for piece in hub.open(pinned(revision, file), file, offset=offset)]
    assert all(0 < len(piece) <= 256 * 1024 for piece in pieces)
    return b"".join(pieces)


def downloads(fake) -> list[str | None]:
    """Range headers of requests for the weights' bytes."""
    return [request.range for request in fake.seen("/repos/")]


@pytest.mark.parametrize("offset", [0, 1, 65_536, 262_144, 500_000, len(DATA) - 1, len(DATA)])
async def test_cold_and_warm_give_the_bytes_from_any_offset(fake, hub, revision, cached, offset):
    assert await read(hub, revision, offset=offset) == DATA[offset:]
    assert cached.read_bytes() == DATA
    assert await read(hub, revision, offset=offset) == DATA[offset:]
    assert downloads(fake) == [None]


async def test_small_files_come_without_lfs(fake, hub, revision):
    small = ModelFile(path="config.json", size=2, sha256=hashlib.sha256(b"{}").hexdigest(), etag="")
    assert await read(hub, revision, file=small) == b"{}"


async def test_an_empty_file_needs_no_request(fake, hub, revision):
    empty = ModelFile(path="empty.bin", size=0, sha256=hashlib.sha256(b"").hexdigest(), etag="")
    assert await read(hub, revision, file=empty) == b""
    assert fake.requests == []


async def test_what_resolve_fetched_is_not_fetched_again(fake, hub, revision):
    pin = await hub.resolve(ModelSpec(id=ID, revision=revision))
    fake.requests.clear()
    assert await read(hub, revision, file=pin.files[0]) == b"{}"
    assert fake.requests == []


async def test_the_token_goes_to_the_hub_and_nowhere_else(fake, make_hub):
    revision = Revision(fake.add_model(ID, {NAME: DATA}, private=True))
    fake.add_token(TOKEN, ID)
    assert await read(make_hub(TOKEN), revision) == DATA
    assert [request.token for request in fake.seen("/resolve/")] == [TOKEN]
    assert [request.token for request in fake.seen("/repos/")] == [None]


async def test_signed_addresses_are_not_logged(fake, make_hub, revision, caplog):
    hub = make_hub()
    with caplog.at_level(logging.INFO):
        assert await read(hub, revision) == DATA
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("uvicorn")]
    assert not [message for message in ours if "Signature" in message]


@pytest.mark.parametrize("offset", [0, 300_000])
async def test_what_comes_between_a_look_and_the_lock_is_not_fetched_again(
    fake, make_hub, revision, cached, offset, monkeypatch
):
    other, take = make_hub(), download_module.take_part

    async def take_late(*what):
        monkeypatch.setattr(download_module, "take_part", take)
        assert await read(other, revision) == DATA
        return await take(*what)

    monkeypatch.setattr(download_module, "take_part", take_late)
    assert await read(make_hub(), revision, offset=offset) == DATA[offset:]
    assert downloads(fake) == [None]
    assert [path.name for path in cached.parent.glob("*.part*")] == []


# --- passing on an address instead of bytes


async def address(hub, revision, file=FILE):
    url = await hub.signed_url(pinned(revision, file), file)
    return None if url is None else url.get_secret_value()


async def test_whoever_has_the_address_of_a_large_file_gets_it_without_a_token(fake, make_hub):
    revision = Revision(fake.add_model(ID, {NAME: DATA}, private=True))
    fake.add_token(TOKEN, ID)
    url = await address(make_hub(TOKEN), revision)
    assert TOKEN not in url
    assert httpx.get(url).content == DATA


async def test_there_is_none_for_what_the_hub_gives_itself_and_for_what_is_cached(fake, hub, revision):
    small = ModelFile(path="config.json", size=2, sha256=hashlib.sha256(b"{}").hexdigest(), etag="")
    assert await address(hub, revision, small) is None
    assert await address(hub, revision) is not None
    await read(hub, revision)
    fake.requests.clear()
    assert await address(hub, revision) is None
    assert fake.requests == []


async def test_there_is_none_for_a_gated_file_without_access(fake, make_hub):
    revision = Revision(fake.add_model(ID, {NAME: DATA}, gated="manual"))
    with pytest.raises(PinNotFound, match="gated"):
        await address(make_hub(), revision)


# --- wrong bytes


async def test_one_flipped_bit_names_the_file_and_both_hashes_and_caches_nothing(fake, hub, revision, cached):
    fake.corrupt(ID, NAME)
    wrong = fake.models[ID].body(fake.file(ID, NAME))
    assert len(wrong) == len(DATA)
    with pytest.raises(PinNotFound) as caught:
        await read(hub, revision)
    assert f"{NAME} of {ID} at {revision}" in str(caught.value)
    assert SHA256 in str(caught.value)
    assert hashlib.sha256(wrong).hexdigest() in str(caught.value)
    assert list(cached.parent.iterdir()) == []
    fake.repair(ID, NAME)
    assert await read(hub, revision) == DATA


async def test_wrong_bytes_before_the_offset_are_found_too(fake, hub, revision):
    fake.corrupt(ID, NAME)
    with pytest.raises(PinNotFound, match=SHA256):
        await read(hub, revision, offset=len(DATA) - 10)


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1])
async def test_another_size_than_the_list_says_is_refused_at_once(fake, hub, revision, size):
    file = ModelFile(path=NAME, size=size, sha256=SHA256, etag=SHA256)
    with pytest.raises(PinNotFound, match=f"offers {len(DATA)} bytes where its list says {size}"):
        await anext(hub.open(pinned(revision, file), file))


@pytest.mark.parametrize("offset", [0, 300_000])
async def test_a_damaged_cache_entry_is_replaced_before_a_byte_is_served(fake, make_hub, revision, cached, offset):
    await read(make_hub(), revision)
    cached.write_bytes(DATA[:-1] + bytes([DATA[-1] ^ 1]))
    assert await read(make_hub(), revision, offset=offset) == DATA[offset:]
    assert cached.read_bytes() == DATA
    assert len(downloads(fake)) == 2


async def test_a_cache_entry_that_changes_under_a_running_process_is_noticed(fake, hub, revision, cached):
    await read(hub, revision)
    cached.write_bytes(b"x" * len(DATA))
    assert await read(hub, revision) == DATA


async def test_an_entry_of_another_repository_is_not_served(fake, hub, revision, cached):
    await read(hub, revision)
    other = Revision(fake.add_model("acme/other", {NAME: DATA}, gated="manual"))
    with pytest.raises(PinNotFound, match="acme/other is gated"):
        await anext(hub.open(replace(pinned(other), id="acme/other"), FILE))


# --- broken connections


@pytest.mark.parametrize("offset", [0, 150_000, 600_000])
@pytest.mark.parametrize("ignores_range", [False, True])
async def test_a_broken_download_is_continued(fake, hub, revision, cached, part, offset, ignores_range):
    fake.ignores_range = ignores_range
    fake.cut(ID, NAME, after=300_000)
    with pytest.raises(HubUnavailable, match="the connection broke"):
        await read(hub, revision)
    have = part.stat().st_size
    assert 0 < have <= 300_000
    assert await read(hub, revision, offset=offset) == DATA[offset:]
    assert downloads(fake) == [None, f"bytes={have}-"]
    assert cached.read_bytes() == DATA
    assert not part.exists()


async def test_a_whole_part_needs_no_request(fake, hub, revision, cached, part):
    part.parent.mkdir(parents=True)
    part.write_bytes(DATA)
    assert await read(hub, revision) == DATA
    assert fake.requests == []
    assert cached.exists()


async def test_a_wrong_part_costs_one_more_try(fake, hub, revision, part, cached):
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1000)
    with pytest.raises(HubUnavailable, match="starts from nothing"):
        await read(hub, revision)
    assert await read(hub, revision) == DATA
    assert cached.read_bytes() == DATA


async def test_a_part_that_is_too_long_is_dropped(hub, revision, part):
    part.parent.mkdir(parents=True)
    part.write_bytes(DATA + b"x")
    assert await read(hub, revision) == DATA


async def test_an_abandoned_download_is_continued(fake, hub, revision, part):
    stream = hub.open(pinned(revision), FILE)
    assert await anext(stream)
    await stream.aclose()
    have = part.stat().st_size
    assert have > 0
    assert await read(hub, revision) == DATA
    assert downloads(fake)[1] == f"bytes={have}-"


async def test_silence_ends_at_the_timeout(fake, make_hub, revision):
    fake.stall(ID, NAME, after=100_000)
    with pytest.raises(HubUnavailable, match="the connection broke"):
        await read(make_hub(idle_timeout_s=0.2), revision)


@pytest.mark.parametrize("status", [403, 429, 500, 503])
async def test_trouble_of_the_store_is_transient_and_keeps_its_address_secret(fake, hub, revision, status):
    fake.fail_next(status, part="/repos/", headers={"Retry-After": "5"})
    with pytest.raises(HubUnavailable, match=f"answered {status}") as caught:
        await read(hub, revision)
    assert caught.value.retry_after_s == 5.0
    assert "Signature" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_file_that_the_store_lost(fake, hub, revision):
    fake.fail_next(404, part="/repos/")
    with pytest.raises(PinNotFound, match="its store at localhost does not have it"):
        await read(hub, revision)


async def test_a_file_that_the_hub_does_not_have(fake, hub, revision):
    other = ModelFile(path="none.bin", size=1, sha256=SHA256, etag=SHA256)
    with pytest.raises(PinNotFound, match=r"The hub has no none\.bin of acme/tiny"):
        await read(hub, revision, file=other)


async def test_redirects_in_circles_end(fake, hub, revision):
    circle = {"Location": f"{fake.url}/{ID}/resolve/{revision}/{NAME}"}
    fake.fail_next(302, part="/resolve/", times=50, headers=circle)
    with pytest.raises(HubUnavailable, match="circles"):
        await read(hub, revision)
    assert len(fake.requests) == 5


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://example.org/x", "http://127.0.0.1:port/x", "http://127.0.0.1:99999/x"]
)
async def test_redirects_to_something_else_than_the_web_are_refused(fake, hub, revision, location):
    fake.fail_next(302, part="/resolve/", headers={"Location": location})
    with pytest.raises(HubUnavailable, match="redirects"):
        await read(hub, revision)


# --- several at once, and the disk


async def test_readers_at_once_all_get_the_bytes_and_none_waits(fake, make_hub, revision, cached):
    hubs = [make_hub(), make_hub()]
    slow = hubs[0].open(pinned(revision), FILE)
    got = await anext(slow)  # the first holds the part and reads no further
    results = await asyncio.gather(*(read(hub, revision, offset=1000) for hub in [*hubs, *hubs]))
    assert all(result == DATA[1000:] for result in results)
    assert not cached.exists()
    async for piece in slow:
        got += piece
    assert got == DATA
    assert cached.read_bytes() == DATA


async def test_another_process_that_writes_the_cache_is_left_alone(hub, revision, part, cached):
    part.parent.mkdir(parents=True)
    with part.open("wb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        assert await read(hub, revision) == DATA
    assert part.read_bytes() == b""
    assert not cached.exists()


async def test_a_wrong_file_beside_another_reader_is_found_too(fake, hub, revision, part):
    part.parent.mkdir(parents=True)
    fake.corrupt(ID, NAME)
    with part.open("wb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        with pytest.raises(PinNotFound, match=SHA256):
            await read(hub, revision)


async def test_a_full_disk_is_said_before_the_download(fake, hub, revision, monkeypatch):
    usage = cache_module.shutil._ntuple_diskusage(100 << 20, 40 << 20, 60 << 20)
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(HubUnavailable, match="60 MiB free"):
        await read(hub, revision)
    assert fake.requests == []


async def test_a_disk_that_fills_up_meanwhile_is_transient(fake, hub, revision, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module.Part, "write", full)
    with pytest.raises(HubUnavailable, match="No space left on device"):
        await read(hub, revision)


def test_a_late_write_never_hits_another_file(tmp_path):
    cache = cache_module.RepoCache(tmp_path)
    part = cache.part(SHA256, 10)
    part.write(b"abc")
    part.close()
    with (tmp_path / "innocent").open("wb") as innocent:
        part.write(b"defg")
        part.rename_to(tmp_path / "x")
        assert os.fstat(innocent.fileno()).st_size == 0
    assert (tmp_path / f"{SHA256}.part").read_bytes() == b"abc"
    assert not (tmp_path / "x").exists()
