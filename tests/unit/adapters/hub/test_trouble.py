"""A disk that refuses and connections that break are worth another try, and are told in one sentence."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from pathlib import Path

import anyio
import httpx2
import pytest
from pydantic import SecretStr

from gpurun.adapters.hub import HuggingFaceHub
from gpurun.adapters.hub import part as part_module
from gpurun.adapters.hub import prefetch as prefetch_module
from gpurun.adapters.hub.cache import RepoCache
from gpurun.adapters.hub.part import Part
from gpurun.adapters.hub.ranges import NotWritten, Ranges
from gpurun.domain.errors import HubUnavailable
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelFile, ModelPin, ModelSpec

ID = "acme/tiny"
NAME = "weights.safetensors"
RANGE = 64 * 1024
DATA = os.urandom(2 * RANGE + 17)
SHA256 = hashlib.sha256(DATA).hexdigest()
FILE = ModelFile(path=NAME, size=len(DATA), sha256=SHA256, etag=SHA256)
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    for module in (part_module, prefetch_module):
        monkeypatch.setattr(module, "RANGE_BYTES", RANGE)


@pytest.fixture
def pin(fake) -> ModelPin:
    return ModelPin(id=ID, revision=Revision(fake.add_model(ID, {NAME: DATA})), files=(FILE,))


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "cache/acme--tiny"


async def prefetch(hub, pin):
    await hub.prefetch([pin], WAIT_S)


async def stream(hub, pin):
    async for _ in hub.open(pin, FILE):
        pass


BOTH = pytest.mark.parametrize("act", [prefetch, stream])


# --- the disk


@BOTH
@pytest.mark.parametrize(
    ("owner", "name"), [(RepoCache, "keep"), (RepoCache, "part"), (Part, "rename_to"), (RepoCache, "_find")]
)
async def test_b092_a_disk_that_refuses_is_transient(hub, pin, folder, monkeypatch, act, owner, name):
    if name == "_find":
        folder.mkdir(parents=True)
        (folder / SHA256).write_bytes(DATA)

    def fails(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(owner, name, fails)
    with pytest.raises(HubUnavailable, match=r"The bot cannot read|the bot cannot keep it") as caught:
        await act(hub, pin)
    assert "(Input/output error)" in str(caught.value)


@BOTH
async def test_b092_wrong_bytes_that_cannot_be_thrown_away(fake, hub, pin, monkeypatch, act):
    def fails(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    fake.corrupt(ID, NAME)
    monkeypatch.setattr(Part, "discard", fails)
    with pytest.raises(HubUnavailable, match=f"{NAME} of {ID}.*Permission denied"):
        await act(hub, pin)


async def test_b092_what_an_earlier_download_left_cannot_be_read(hub, pin, folder, monkeypatch):
    folder.mkdir(parents=True)
    (folder / f"{SHA256}.part").write_bytes(DATA[:100])

    def fails(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", fails)
    with pytest.raises(HubUnavailable, match="Input/output error"):
        await stream(hub, pin)


@BOTH
async def test_b092_a_folder_in_the_place_of_a_file(hub, pin, folder, act):
    (folder / SHA256).mkdir(parents=True)
    with pytest.raises(HubUnavailable, match=f"The bot cannot read {folder / SHA256}"):
        await act(hub, pin)


@BOTH
async def test_b092_a_file_in_the_place_of_the_cache(hub, pin, folder, act):
    folder.parent.write_bytes(b"")
    with pytest.raises(HubUnavailable):
        await act(hub, pin)


async def test_a_file_that_vanishes_while_it_is_looked_at_is_fetched(hub, pin, folder, monkeypatch):
    await stream(hub, pin)
    real = RepoCache._find

    def vanishes(self, path, *args):
        path.unlink(missing_ok=True)
        return real(self, path, *args)

    monkeypatch.setattr(RepoCache, "_find", vanishes)
    await stream(hub, pin)
    assert (folder / SHA256).read_bytes() == DATA


@pytest.fixture
def part(tmp_path):
    path = tmp_path / "x.part"
    path.write_bytes(DATA)
    made = Part(path, os.open(path, os.O_RDWR), len(DATA))
    yield made
    made.close()


async def hashed(part):
    ranges = Ranges(httpx2.URL("http://localhost:9/"), part, len(DATA), idle_timeout_s=1)
    with anyio.fail_after(10):
        return await ranges.fetch(anyio.CapacityLimiter(1))


async def test_a_part_that_became_shorter_ends_the_hash(part):
    assert await hashed(part) == SHA256
    os.truncate(part.path, RANGE)
    with pytest.raises(NotWritten, match="it became shorter"):
        await hashed(part)


async def test_a_part_that_was_removed_ends_the_hash(part):
    part.path.unlink()
    with pytest.raises(NotWritten, match="No such file"):
        await hashed(part)


# --- the wire


async def test_a_store_whose_name_is_none(hub, pin, fake, monkeypatch):
    monkeypatch.setattr(fake, "cdn_url", f"http://{'a' * 70}.example")
    with pytest.raises(HubUnavailable, match=r"connection to a+\.example broke \(UnicodeError\)"):
        await prefetch(hub, pin)


@pytest.fixture
async def breaking_off(tmp_path, clock):
    """A hub that says what it refuses, and breaks off within."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\nit is")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        hub = HuggingFaceHub(f"http://127.0.0.1:{port}", SecretStr(""), tmp_path / "cache", clock)
        yield hub
        await hub.close()


async def test_a_refusal_that_breaks_off_is_transient(breaking_off, pin):
    for asked in (
        breaking_off.resolve(ModelSpec(id=ID, revision=pin.revision)),
        breaking_off.revision_of(ID, "main"),
        stream(breaking_off, pin),
    ):
        with pytest.raises(HubUnavailable, match=r"answered 404 for .*, and the connection broke"):
            await asked
