"""Who is cancelled while a thread works for him leaves no lock and no descriptor behind, and lets none go too early."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from gpurun.adapters.hub.cache import RepoCache
from gpurun.adapters.hub.part import Part
from gpurun.adapters.hub.threads import finished
from gpurun.domain.errors import PinNotFound
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelFile, ModelPin

ID = "acme/tiny"
NAME = "weights.safetensors"
DATA = os.urandom(100_000)
SHA256 = hashlib.sha256(DATA).hexdigest()
FILE = ModelFile(path=NAME, size=len(DATA), sha256=SHA256, etag=SHA256)
WAIT_S = 60.0


@pytest.fixture
def pin(fake) -> ModelPin:
    return ModelPin(id=ID, revision=Revision(fake.add_model(ID, {NAME: DATA})), files=(FILE,))


@pytest.fixture
def taken(tmp_path):
    """The part as another process would take it; closed again."""

    def take() -> bool:
        part = RepoCache(tmp_path / "cache/acme--tiny").part(SHA256, len(DATA))
        if part is None:
            return False
        part.close()
        return True

    return take


class Held:
    """A method whose thread waits behind (or in front of) the real one."""

    def __init__(self, monkeypatch, owner, name, *, behind):
        self.reached, self.go, self.ended = threading.Event(), threading.Event(), threading.Event()
        real = getattr(owner, name)

        def held(*args):
            try:
                given = real(*args) if behind else None
                self.reached.set()
                assert self.go.wait(10)
                return given if behind else real(*args)
            finally:
                self.ended.set()

        self.put_back = lambda: monkeypatch.setattr(owner, name, real)
        monkeypatch.setattr(owner, name, held)

    async def is_reached(self) -> None:
        assert await anyio.to_thread.run_sync(self.reached.wait, 10)

    async def ends(self) -> None:
        self.put_back()
        self.go.set()
        assert await anyio.to_thread.run_sync(self.ended.wait, 10)


async def prefetch(hub, pin):
    await hub.prefetch([pin], WAIT_S)


async def stream(hub, pin):
    async with contextlib.aclosing(hub.open(pin, FILE)) as pieces:
        with contextlib.suppress(PinNotFound):  # of wrong bytes, which comes before the cancellation
            async for _ in pieces:
                pass


@pytest.mark.parametrize("act", [prefetch, stream])
async def test_a_part_that_comes_too_late_can_be_taken_again(hub, pin, taken, monkeypatch, act):
    held = Held(monkeypatch, RepoCache, "part", behind=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(act, hub, pin)
        await held.is_reached()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await held.ends()
    assert taken()


@pytest.mark.parametrize("act", [prefetch, stream])
async def test_also_when_asyncio_cancels(hub, pin, taken, monkeypatch, act):
    held = Held(monkeypatch, RepoCache, "part", behind=True)
    task = asyncio.ensure_future(act(hub, pin))
    await held.is_reached()
    task.cancel()
    await anyio.lowlevel.checkpoint()
    await held.ends()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert taken()


@pytest.mark.parametrize("act", [prefetch, stream])
async def test_a_part_is_locked_while_it_is_thrown_away(fake, hub, pin, taken, monkeypatch, act):
    fake.corrupt(ID, NAME)
    held = Held(monkeypatch, Part, "discard", behind=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(act, hub, pin)
        await held.is_reached()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()
            locked = not taken()
            await held.ends()
    assert locked
    assert taken()


async def test_a_file_of_the_cache_that_is_opened_too_late_is_closed(tmp_path):
    (tmp_path / "x").write_bytes(b"x")
    go, opened = threading.Event(), []

    def slowly():
        go.wait(10)
        opened.append((tmp_path / "x").open("rb"))
        return opened[0]

    task = asyncio.ensure_future(finished(slowly))
    await anyio.lowlevel.checkpoint()
    task.cancel()
    await anyio.lowlevel.checkpoint()
    task.cancel()
    go.set()
    await asyncio.wait([task])
    while not opened or not opened[0].closed:
        await anyio.lowlevel.checkpoint()
    assert task.cancelled()
