"""Blobs in a real folder: offsets, races, crashes, keys."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpurun.adapters.blobs import FolderBlobs
from gpurun.domain.errors import Bug, WrongOffset


@pytest.fixture
def blobs(tmp_path):
    return FolderBlobs(tmp_path / "blobs")


async def read(blobs: FolderBlobs, key: str, offset: int = 0) -> bytes:
    return b"".join([piece async for piece in blobs.open(key, offset=offset)])


async def test_appends_are_read_back_from_any_offset(blobs):
    assert await blobs.append("log/a1/0", 0, b"hello ") == 6
    assert await blobs.append("log/a1/0", 6, b"world") == 11
    assert await blobs.size("log/a1/0") == 11
    assert [await read(blobs, "log/a1/0", offset) for offset in (0, 6, 11, 99)] == [b"hello world", b"world", b"", b""]


async def test_pieces_are_bounded(blobs):
    data = os.urandom(700_000)
    await blobs.append("big", 0, data)
    pieces = [piece async for piece in blobs.open("big")]
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) == 256 * 1024


async def test_what_is_there_already_is_not_written_again(blobs, monkeypatch):
    """A process that was frozen may put what another one has put and recorded since, and die over it."""
    files = {"a/0": b"one", "a/1": b"", "a/2": b"three"}
    await blobs.put(files)

    def dies(file: int, length: int) -> None:
        raise OSError(errno.EIO, "as if it died")

    monkeypatch.setattr(os, "ftruncate", dies)
    with pytest.raises(OSError, match="as if it died"):
        await blobs.put(files | {"a/2": b"other"})
    assert [await read(blobs, key) for key in ("a/0", "a/1")] == [b"one", b""]
    await blobs.put({"a/0": b"one"})


async def test_who_puts_the_same_ones_in_another_order_waits_and_does_not_stop_for_ever(blobs):
    keys = [f"a/{number}" for number in range(40)]
    async with asyncio.timeout(30):
        for _ in range(20):
            await asyncio.gather(blobs.put(dict.fromkeys(keys, b"1")), blobs.put(dict.fromkeys(reversed(keys), b"2")))
    assert len({await read(blobs, key) for key in keys}) == 1


async def test_several_are_put_in_the_place_of_what_was_there(blobs):
    await blobs.append("a/0", 0, b"half of another file")
    files = {f"a/{number}": b"x" * number for number in range(100)}
    await blobs.put(files)
    assert {key: await read(blobs, key) for key in files} == files


async def test_of_several_none_is_left_when_one_finds_no_room(blobs, monkeypatch):
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(OSError, match="No space left"):
        await blobs.put({"a/0": b"1", "a/1": b"2"})
    assert [await blobs.size(key) for key in ("a/0", "a/1")] == [0, 0]


async def test_what_is_not_there_is_empty(blobs):
    assert await blobs.size("none") == 0
    assert await read(blobs, "none") == b""
    await blobs.delete("none")


@pytest.mark.parametrize("offset", [0, 2, 4, 1 << 40])
async def test_another_offset_than_the_end_is_told_the_end_and_writes_nothing(blobs, offset):
    await blobs.append("k", 0, b"abc")
    with pytest.raises(WrongOffset) as caught:
        await blobs.append("k", offset, b"zzz")
    assert caught.value.next == 3
    assert await read(blobs, "k") == b"abc"


async def test_of_equal_appends_at_once_one_wins(blobs):
    results = await asyncio.gather(*(blobs.append("k", 0, b"%d" % n) for n in range(8)), return_exceptions=True)
    assert sorted(str(result) for result in results) == sorted(["1", *["the stream continues at 1"] * 7])
    assert len(await read(blobs, "k")) == 1


async def test_appends_and_deletes_at_once_never_lose_an_acknowledged_byte(blobs):
    async def append_all():
        for _ in range(30):
            at = await blobs.size("a/b/k")
            try:
                await blobs.append("a/b/k", at, b"x")
            except WrongOffset:
                continue

    async def delete_all():
        for _ in range(30):
            await blobs.delete("a/b/k")

    await asyncio.gather(append_all(), append_all(), delete_all())
    await blobs.delete("a/b/k")
    assert await blobs.append("a/b/k", 0, b"fresh") == 5
    assert await read(blobs, "a/b/k") == b"fresh"


async def test_a_full_disk_writes_nothing(blobs, monkeypatch):
    await blobs.append("k", 0, b"abc")
    real = os.pwrite

    def full_after_two(file, data, offset):
        if offset >= 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, bytes(data)[:2], offset)

    monkeypatch.setattr(os, "pwrite", full_after_two)
    with pytest.raises(OSError, match="No space left"):
        await blobs.append("k", 3, b"defgh")
    monkeypatch.undo()
    assert await read(blobs, "k") == b"abc"
    assert await blobs.append("k", 3, b"d") == 4


async def test_a_key_and_a_key_below_it_are_two_blobs(blobs, tmp_path):
    await blobs.append("a", 0, b"1")
    await blobs.append("a/b", 0, b"22")
    await blobs.delete("a")
    assert (await blobs.size("a"), await blobs.size("a/b")) == (0, 2)
    assert [path.name for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == ["a,b"]


async def test_several_go_at_once_and_what_is_not_there_is_no_fault(blobs):
    for key in ("a", "b", "c"):
        await blobs.append(key, 0, b"1")
    await blobs.delete("a", "none", "c")
    assert [await blobs.size(key) for key in ("a", "b", "c")] == [0, 1, 0]
    await blobs.delete()


@pytest.mark.parametrize(
    "key",
    ["", "/etc/passwd", "../up", "a/../b", "a/./b", "a//b", "a/", "A", "ü", "a\0b", "a b", "a\n", "...", "x" * 600],
)
async def test_a_key_never_leaves_the_folder(blobs, key):
    with pytest.raises(Bug, match="is not a key"):
        await blobs.append(key, 0, b"x")
    with pytest.raises(Bug, match="is not a key"):
        await read(blobs, key)


async def test_a_symlink_is_not_followed(blobs, tmp_path):
    await blobs.append("link", 0, b"x")
    [file] = (path for path in (tmp_path / "blobs").rglob("*") if path.is_file())
    file.unlink()
    file.symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="symbolic links"):
        await blobs.append("link", 0, b"x")
    assert not (tmp_path / "outside").exists()


STEP = st.tuples(st.sampled_from(["a", "b/c"]), st.integers(0, 12), st.binary(max_size=6), st.booleans())


@settings(max_examples=40)
@given(steps=st.lists(STEP, max_size=12))
def test_it_is_a_mapping_of_growing_strings(steps, tmp_path_factory):
    blobs = FolderBlobs(tmp_path_factory.mktemp("blobs"))
    model: dict[str, bytes] = defaultdict(bytes)

    async def play():
        for key, offset, data, delete in steps:
            if delete:
                await blobs.delete(key)
                model.pop(key, None)
            elif offset == len(model[key]):
                model[key] += data
                assert await blobs.append(key, offset, data) == len(model[key])
            else:
                with pytest.raises(WrongOffset):
                    await blobs.append(key, offset, data)
            assert await read(blobs, key) == model[key]
            assert await blobs.size(key) == len(model[key])

    asyncio.run(play())
