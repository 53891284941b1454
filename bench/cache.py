"""A warm cache of 1 GB: until the folder that a container mounts is laid out, and hashing all of it anew.

The files lie in memory where that has room, so that the disk decides nothing. Nobody is asked: the hub's address is one
where nobody listens.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
from pydantic import SecretStr

from bench.harness import Figure, at_least, bound, seconds
from gpurun.adapters.clock import SystemChance, SystemClock
from gpurun.adapters.hub import HuggingFaceHub
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelFile, ModelPin

N_BYTES = 1_000_000_000
N_SHARDS = 4
N_SMALL = 40
"""Files of a large model beside its shards."""
GOAL_WARM_S = 0.1
GOAL_HASH = 1e9
"""Bytes a second."""
ROUNDS = 5
ID = "acme/big"
UNTIL = datetime(2040, 1, 1, tzinfo=UTC)
_MEMORY = Path("/dev/shm")


def main() -> list[Figure]:
    """Three figures."""
    with _cache() as (folder, pin):
        hash_s = statistics.median(seconds(lambda: _with_hub(folder, _lay_out(pin))) for _ in range(ROUNDS))
        again, anew = anyio.run(_warm, folder, pin)
    return [
        bound("warm cache to the folder to mount, s", again, GOAL_WARM_S),
        bound("the same for pins that were never laid out, s", anew, GOAL_WARM_S),
        at_least("hashed anew by a new process, bytes/s", N_BYTES / hash_s, GOAL_HASH),
    ]


async def _warm(folder: Path, pin: ModelPin) -> tuple[float, float]:
    """Medians of calls in a process that has hashed the files: with a view, and without."""
    again, anew = [], []

    async def measure(hub: HuggingFaceHub) -> None:
        act = _lay_out(pin)
        await act(hub)
        for _ in range(ROUNDS):
            again.append(await _seconds(act, hub))
            for view in (folder / "views").iterdir():
                view.rename(folder / "views" / f".new-{SystemChance().ulid()}")
            anew.append(await _seconds(act, hub))

    await _opened(folder, measure)
    return statistics.median(again), statistics.median(anew)


async def _seconds(act: Callable[[HuggingFaceHub], Awaitable[None]], hub: HuggingFaceHub) -> float:
    start = SystemClock().monotonic()
    await act(hub)
    return SystemClock().monotonic() - start


def _with_hub(folder: Path, act: Callable[[HuggingFaceHub], Awaitable[None]]) -> None:
    anyio.run(_opened, folder, act)


async def _opened(folder: Path, act: Callable[[HuggingFaceHub], Awaitable[None]]) -> None:
    hub = HuggingFaceHub("http://127.0.0.1:9", SecretStr(""), folder, SystemClock())
    await act(hub)
    await hub.close()


def _lay_out(pin: ModelPin) -> Callable[[HuggingFaceHub], Awaitable[None]]:
    async def act(hub: HuggingFaceHub) -> None:
        done = await hub.lay_out([pin], user=SystemChance().ulid(), until=UNTIL, wait_s=600)
        assert done.folder

    return act


@contextmanager
def _cache() -> Iterator[tuple[Path, ModelPin]]:
    """Filled as a download leaves it."""
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 * N_BYTES
    with tempfile.TemporaryDirectory(dir=_MEMORY if roomy else None) as name:
        folder = Path(name)
        content = folder / ID.replace("/", "--")
        content.mkdir()
        files = []
        shards = [(f"model-{n}.safetensors", N_BYTES // N_SHARDS) for n in range(N_SHARDS)]
        for path, size in [*shards, *((f"{n}.json", 1000) for n in range(N_SMALL))]:
            digest, draft = hashlib.sha256(), content / ".new-file"
            with draft.open("wb") as out:
                for at in range(0, size, 1_000_000):
                    piece = os.urandom(min(1_000_000, size - at))
                    digest.update(piece)
                    out.write(piece)
            sha256 = digest.hexdigest()
            draft.rename(content / sha256)
            files.append(ModelFile(path=path, size=size, sha256=sha256, etag=sha256))
        yield folder, ModelPin(id=ID, revision=Revision("d" * 40), files=tuple(files))
