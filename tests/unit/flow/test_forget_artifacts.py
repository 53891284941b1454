"""Old artifacts lose their bytes and nothing else, wherever the process dies."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest

from gpurun.adapters.blobs import FolderBlobs
from gpurun.domain.manifest import manifest_digest
from gpurun.domain.run import AttemptState, Phase
from gpurun.domain.stream import Artifact
from gpurun.flow import failpoints
from gpurun.flow.forget_artifacts import forget_once
from tests.fakes.clock import START
from tests.fakes.rows import an_attempt

KEEP = timedelta(days=90)
LONG_AGO = START - KEEP - timedelta(seconds=1)


@pytest.fixture
def blobs(tmp_path):
    return FolderBlobs(tmp_path / "blobs")


async def left(store, blobs, name: str, **changes) -> tuple[Artifact, ...]:
    """An attempt with two files."""
    rows = []
    for number, path in enumerate(("a", "b/c")):
        data = f"{name} {path}".encode()
        blob = f"artifacts/{name}/{number}"
        await blobs.append(blob, 0, data)
        rows.append(Artifact(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest(), blob=blob))

    await blobs.append(f"artifacts/{name}/2", 0, b"half")

    def write(tx):
        attempt = an_attempt(id=name, name=name, run_id=name, **changes)
        tx.add_attempt(attempt)
        for row in rows:
            tx.add_artifact(name, row)

    await store.write(write)
    return tuple(rows)


async def kept(store, blobs, name: str) -> list[int]:
    """Sizes of what is there, of the file that was half sent too."""
    return [await blobs.size(f"artifacts/{name}/{number}") for number in range(3)]


DEATHS = [f"artifacts.{edge}.{side}" for edge in ("delete", "forget") for side in ("before", "after")]


@pytest.mark.parametrize("died", ["", *DEATHS])
async def test_only_what_is_old_enough_loses_its_bytes(store, blobs, died):
    over = {"state": AttemptState.GONE, "gone_at": LONG_AGO, "state_since": LONG_AGO, "due_at": None}
    before = await left(store, blobs, "old", **over)
    await left(store, blobs, "young", **over | {"gone_at": LONG_AGO + timedelta(seconds=2)})
    await left(store, blobs, "live", state=AttemptState.LIVE, state_since=LONG_AGO)
    if died:
        failpoints.arm(died, "raise")
        with pytest.raises(failpoints.Crash):
            await forget_once(store, blobs, KEEP)
    assert await forget_once(store, blobs, KEEP) == (0 if died == "artifacts.forget.after" else 2)
    assert await forget_once(store, blobs, KEEP) == 0
    after = await store.read(lambda tx: tx.artifacts("old"))
    assert await kept(store, blobs, "old") == [0, 0, 0]
    assert [row.blob for row in after] == ["", ""]
    assert manifest_digest(after) == manifest_digest(before)
    for name in ("young", "live"):
        assert 0 not in await kept(store, blobs, name)
        assert all(row.blob for row in await store.read(lambda tx, name=name: tx.artifacts(name)))


async def test_a_file_that_was_half_sent_goes_also_where_it_was_the_only_one(store, blobs):
    ends = {"old": LONG_AGO, "young": LONG_AGO + timedelta(seconds=2), "late": LONG_AGO - timedelta(days=6)}
    ends["never"] = LONG_AGO  # it did not come to its artifacts: nobody looks for a hundred files of each such attempt

    def write(tx):
        for name, at in ends.items():
            over = {"state": AttemptState.GONE, "gone_at": at, "state_since": at, "due_at": None}
            phase = Phase.RUNNING if name == "never" else Phase.COLLECTING
            tx.add_attempt(an_attempt(id=name, name=name, run_id=name, phase=phase, **over))
        tx.add_attempt(an_attempt(id="live", name="live", run_id="live", state=AttemptState.LIVE, state_since=LONG_AGO))

    await store.write(write)
    for name in (*ends, "live"):
        await blobs.append(f"artifacts/{name}/0", 0, b"half")
    assert await forget_once(store, blobs, KEEP) == 0
    assert {name: await blobs.size(f"artifacts/{name}/0") for name in (*ends, "live")} == {
        "old": 0, "young": 4, "late": 0, "never": 4, "live": 4,
    }  # fmt: skip
