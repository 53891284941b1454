"""The store of contents by itself, filled from a checkout; downloads are in test_source.py."""

from __future__ import annotations

import fcntl
import hashlib
from pathlib import Path

import pytest

from gpurun.adapters.git.lfs import LfsStore
from gpurun.adapters.git.missing import LfsFile
from gpurun.domain.errors import PinNotFound
from gpurun.domain.forge import GitSource

SOURCE = GitSource(url="/nowhere")
CONTENT = b"weights" * 1000
OID = hashlib.sha256(CONTENT).hexdigest()
FILE = LfsFile("w.bin", b"100644", OID, len(CONTENT))


@pytest.fixture
def given(tmp_path) -> Path:
    """The `lfs/objects` of a checkout."""
    kept = tmp_path / "objects" / OID[:2] / OID[2:4] / OID
    kept.parent.mkdir(parents=True)
    kept.write_bytes(CONTENT)
    return tmp_path / "objects"


@pytest.fixture
def store(tmp_path) -> LfsStore:
    return LfsStore(tmp_path / "store")


async def content(store: LfsStore, file: LfsFile = FILE) -> bytes:
    return b"".join([piece async for piece in store.open(file)])


@pytest.mark.parametrize("sizes", [(7000, 7001), (7001, 7000)])
async def test_b108_two_sizes_of_one_content_are_refused(store, given, sizes):
    first, second = (LfsFile(f"{size}.bin", b"100644", OID, size) for size in sizes)
    with pytest.raises(PinNotFound, match=f"'{sizes[0]}.bin' and '{sizes[1]}.bin' of git LFS name the same content"):
        await store.fetch(SOURCE, [first, second], given=given)


async def test_the_same_content_in_two_files_comes_once(store, given):
    await store.fetch(SOURCE, [FILE, LfsFile("other.bin", b"100755", OID, FILE.size)], given=given)
    assert await content(store) == CONTENT


@pytest.mark.parametrize("is_finished", [True, False])
async def test_a_part_that_another_process_finished_before_our_lock_stays_what_it_is(
    store, given, tmp_path, monkeypatch, is_finished
):
    """Whoever opened the part just before it got its name holds a lock on the finished file."""
    part, real = tmp_path / "store" / OID[:2] / f"{OID}.part", fcntl.flock
    seen: list[bytes] = []

    def flock(file, how: int) -> None:
        if part.exists() and not seen:
            if is_finished:
                part.write_bytes(CONTENT)
                part.rename(part.with_suffix(""))
            else:  # it was wrong, and is away
                part.unlink()
            seen.append(CONTENT)
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    await store.fetch(SOURCE, [FILE], given=given)
    assert seen
    assert await content(store) == CONTENT
    assert [path.name for path in part.parent.iterdir()] == [OID]
