"""One cold file of 1 GB from loopback into the bot's cache by `prefetch`, beside two other ways to get it.

Ours is hashed while it comes, in ranges over up to four connections, in a process that runs already; its pin is
resolved beforehand, so that the hub's file list is in no time of ours.

- `curl`, then `sha256sum`: one connection, and the hash only behind the last byte, by programs that must start. Most
  of the time may be `sha256sum`'s: where coreutils do not use the processor's instructions for it, they hash several
  times slower than OpenSSL, which is in ours. So this compares ways to get a verified file, and not downloads.
- `snapshot_download` without Xet: over one connection, as it is one file. It compares the size and hashes nothing. Its
  time begins behind its imports, and has its requests for the commit and the list.

Nobody syncs. Everything lies in memory where /dev/shm has room for it, else in the folder for temporary files. The hub
is a thread of this process, and is asked for little; it redirects to a store that is a process of its own, without TLS
and without latency. On a busy machine more threads get a larger share of it, which is to our favour: see `load` in the
results.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from pydantic import SecretStr

from bench.harness import Figure, compare, seconds
from gpurun.adapters.clock import SystemClock
from gpurun.adapters.hub import HuggingFaceHub
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelPin, ModelSpec
from tests.fakes.hub import FakeHub

N_BYTES = 1_000_000_000
GOAL_CURL = 1 / 0.8
"""0.8 of its bytes a second."""
GOAL_SNAPSHOT = 1.0
ROUNDS = 3
ID = "acme/big"
NAME = "model.safetensors"
_MEMORY = Path("/dev/shm")
_SNAPSHOT = """\
import sys, time
from huggingface_hub import snapshot_download
start = time.perf_counter()
snapshot_download(sys.argv[1], revision=sys.argv[2], cache_dir=sys.argv[3])
print(time.perf_counter() - start)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    folder: Path
    endpoint: str
    store: str
    pin: ModelPin


def main() -> list[Figure]:
    """Two figures."""
    with _place() as place:
        return [
            compare(
                "1 GB of weights, verified, vs curl + sha256sum",
                subject=lambda: _ours(place),
                anchor=lambda: _curl(place),
                goal=GOAL_CURL,
                rounds=ROUNDS,
            ),
            compare(
                "1 GB of weights, verified, vs snapshot_download",
                subject=lambda: _ours(place),
                anchor=lambda: _snapshot(place),
                goal=GOAL_SNAPSHOT,
                rounds=ROUNDS,
            ),
        ]


@contextmanager
def _place() -> Iterator[_Place]:
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 3 * N_BYTES
    with tempfile.TemporaryDirectory(dir=_MEMORY if roomy else None) as name:
        folder = Path(name)
        file = folder / NAME
        with file.open("wb") as out:
            for _ in range(N_BYTES // 1_000_000):
                out.write(os.urandom(1_000_000))
        hub = FakeHub()
        revision = Revision(hub.add_model(ID, {NAME: file}))
        with _store(file) as store, hub.serving() as endpoint:
            hub.cdn_url = store
            pin = anyio.run(_resolve, endpoint, revision, folder)
            yield _Place(folder=folder, endpoint=endpoint, store=store, pin=pin)


@contextmanager
def _store(file: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "bench.weights_server", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://localhost:{int(process.stdout.readline())}"
        finally:
            process.terminate()


async def _resolve(endpoint: str, revision: Revision, folder: Path) -> ModelPin:
    hub = HuggingFaceHub(endpoint, SecretStr(""), folder / "resolve", SystemClock())
    pin = await hub.resolve(ModelSpec(id=ID, revision=revision))
    await hub.close()
    return pin


def _ours(place: _Place) -> float:
    async def fetch(folder: Path) -> None:
        hub = HuggingFaceHub(place.endpoint, SecretStr(""), folder, SystemClock())
        done = await hub.prefetch([place.pin], 600)
        await hub.close()
        assert done.ready

    with tempfile.TemporaryDirectory(dir=place.folder) as folder:
        return seconds(lambda: anyio.run(fetch, Path(folder)))


def _curl(place: _Place) -> float:
    url = f"{place.endpoint}/{ID}/resolve/{place.pin.revision}/{NAME}"
    with tempfile.TemporaryDirectory(dir=place.folder) as folder:
        command = f'curl -sSfL -o "$0" "$1" && sha256sum "$0" | grep -q {place.pin.files[0].sha256}'
        return seconds(lambda: subprocess.run(["sh", "-c", command, f"{folder}/file", url], check=True))


def _snapshot(place: _Place) -> float:
    env = {"HF_ENDPOINT": place.endpoint, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    with tempfile.TemporaryDirectory(dir=place.folder) as folder:
        command = [sys.executable, "-c", _SNAPSHOT, ID, place.pin.revision, folder]
        env |= {"HF_HOME": folder, "PATH": os.defpath}
        done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return float(done.stdout)
