from __future__ import annotations

import hashlib

import pytest

from gpurun.adapters.blobs import FolderBlobs
from gpurun.cli.artifacts import place_artifacts, usable_folder, write_artifacts
from gpurun.domain.errors import UserError
from gpurun.domain.stream import Artifact
from gpurun.report.terminal import Places


async def collected(blobs: FolderBlobs, path: str, data: bytes, number: int = 0) -> Artifact:
    blob = f"artifacts/a/{number}"
    if data:
        await blobs.append(blob, 0, data)
    return Artifact(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest(), blob=blob)


@pytest.fixture
def blobs(tmp_path):
    return FolderBlobs(tmp_path / "blobs")


async def test_files_lie_under_their_paths(blobs, tmp_path):
    files = {"out/a.txt": b"one", "out/deep/b.bin": bytes(600_000), "empty": b""}
    artifacts = [await collected(blobs, path, data, number) for number, (path, data) in enumerate(files.items())]
    folder = tmp_path / "kept"
    assert await write_artifacts(blobs, artifacts, folder) == {}
    assert {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == files
    assert [await blobs.size(artifact.blob) for artifact in artifacts] == [0, 0, 0]


async def test_a_file_of_an_earlier_run_is_replaced(blobs, tmp_path):
    (tmp_path / "a.txt").write_text("old and longer")
    await write_artifacts(blobs, [await collected(blobs, "a.txt", b"new")], tmp_path)
    assert (tmp_path / "a.txt").read_bytes() == b"new"


async def test_a_folder_in_the_way_is_a_sentence_and_the_bytes_stay(blobs, tmp_path):
    (tmp_path / "a.txt").mkdir()
    artifact = await collected(blobs, "a.txt", b"new")
    assert await write_artifacts(blobs, [artifact], tmp_path) == {"a.txt": "Is a directory"}
    assert await blobs.size(artifact.blob) == 3
    assert [path.name for path in tmp_path.glob(".gpurun-*")] == []


async def test_what_finds_no_place_is_written_to_the_folder_of_the_run(blobs, tmp_path):
    """The first that finds none does not keep the next one back."""
    folder, own = tmp_path / "kept", tmp_path / "state/artifacts"
    (folder / "a.txt").mkdir(parents=True)
    artifacts = [await collected(blobs, "a.txt", b"new"), await collected(blobs, "b.txt", b"next", 1)]
    places = await place_artifacts(blobs, artifacts, folder, instead=own)
    assert places == Places(folder=str(folder), unwritten={"a.txt": "Is a directory"}, instead=str(own))
    assert ((own / "a.txt").read_bytes(), (folder / "b.txt").read_bytes()) == (b"new", b"next")
    assert [await blobs.size(artifact.blob) for artifact in artifacts] == [0, 0]


async def test_what_finds_no_place_at_all_stays_in_the_store(blobs, tmp_path):
    why = {"a.txt": "Is a directory"}
    (tmp_path / "kept/a.txt").mkdir(parents=True)
    (tmp_path / "own/a.txt").mkdir(parents=True)
    artifact = await collected(blobs, "a.txt", b"new")
    for folder in (tmp_path / "kept", tmp_path / "own"):
        places = await place_artifacts(blobs, [artifact], folder, instead=tmp_path / "own")
        assert places == Places(folder=str(folder), unwritten=why, nowhere=why)
    assert await blobs.size(artifact.blob) == 3
    assert await place_artifacts(blobs, [], tmp_path, instead=tmp_path) == Places()


def test_a_file_is_no_folder_for_artifacts(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        usable_folder(tmp_path / "file" / "below")


async def test_nothing_is_written_through_links(blobs, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    folder = usable_folder(tmp_path / "kept")
    (folder / "out").symlink_to(tmp_path / "elsewhere")
    (folder / "a.txt").symlink_to(tmp_path / "elsewhere/a.txt")
    behind = await collected(blobs, "out/b.txt", b"new")
    why = f"{folder / 'out'} is a symbolic link, which may lead elsewhere"
    assert await write_artifacts(blobs, [behind], folder) == {"out/b.txt": why}
    assert await blobs.size(behind.blob) == 3
    at_a_link = await collected(blobs, "a.txt", b"new", 1)
    (folder / f".gpurun-{at_a_link.sha256[:16]}").symlink_to(tmp_path / "elsewhere/draft")
    await write_artifacts(blobs, [at_a_link], folder)
    assert not (folder / "a.txt").is_symlink()
    assert [*(tmp_path / "elsewhere").iterdir()] == []


def test_a_link_that_leads_nowhere_is_no_folder_for_artifacts(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match="it is a symbolic link that leads nowhere"):
        usable_folder(tmp_path / "link")
