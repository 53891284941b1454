"""`ports.bytes.Hub` against a mirror that others wrote: our own stand-in for the hub may be wrong where we are."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download
from pydantic import SecretStr

from gpurun.adapters.clock import SystemClock
from gpurun.adapters.hub import HuggingFaceHub
from gpurun.domain.errors import PinNotFound
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelSpec
from tests.services.engine import missing
from tests.services.olah import Missing, Olah

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

ID = "acme/tiny"
OLD = {
    "config.json": b'{"layers": 1}',
    "model.bin": bytes(range(256)) * 8000,
    "sub/vocab.txt": b"a\nb\n",
    "gone.txt": b"x",
}
NEW = {"config.json": b'{"layers": 2}', "model.bin": bytes(range(256)) * 8000, "sub/vocab.txt": b"a\nb\nc\n"}
USER, UNTIL = "0" * 26, datetime(2040, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def olah(tmp_path_factory):
    mirror = Olah(tmp_path_factory.mktemp("olah"))
    mirror.old = mirror.commit(ID, OLD, tag="v1")
    mirror.new = mirror.commit(ID, NEW)
    try:
        with mirror.serving():
            yield mirror
    except Missing as lacking:
        missing(str(lacking))


@pytest.fixture
async def hub(olah, tmp_path):
    hub = HuggingFaceHub(olah.url, SecretStr(""), tmp_path / "hub", SystemClock())
    yield hub
    await hub.close()


async def laid_out(hub, pin) -> Path:
    done = await hub.lay_out([pin], user=USER, until=UNTIL, wait_s=60)
    assert done.ready
    return Path(done.folder)


def content(folder: str) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize(("ref", "which"), [("main", "new"), ("v1", "old")])
async def test_b082_a_name_is_the_commit_that_it_points_to(hub, olah, ref, which):
    assert await hub.revision_of(ID, ref) == getattr(olah, which)


@pytest.mark.parametrize(("which", "files"), [("old", OLD), ("new", NEW)])
async def test_a_commit_has_its_files_with_their_sizes(hub, olah, which, files):
    pin = await hub.resolve(ModelSpec(id=ID, revision=Revision(getattr(olah, which))))
    assert {file.path: file.size for file in pin.files} == {path: len(data) for path, data in files.items()}


@pytest.mark.parametrize(("which", "files"), [("old", OLD), ("new", NEW)])
async def test_what_is_laid_out_is_what_huggingface_hub_downloads(hub, olah, tmp_path, which, files):
    revision = Revision(getattr(olah, which))
    view = await laid_out(hub, await hub.resolve(ModelSpec(id=ID, revision=revision, refs=("main",))))
    ours = content(snapshot_download(ID, revision=revision, cache_dir=view, local_files_only=True))
    theirs = content(snapshot_download(ID, revision=revision, cache_dir=tmp_path / "theirs", endpoint=olah.url))
    assert ours == theirs == files
    assert content(snapshot_download(ID, cache_dir=view, local_files_only=True)) == files  # by the name


async def test_only_what_is_asked_for_comes(hub, olah):
    spec = ModelSpec(id=ID, revision=Revision(olah.new), include=("*.json",))
    view = await laid_out(hub, await hub.resolve(spec))
    (blob,) = view.rglob("blobs/*")
    assert hashlib.sha256(blob.read_bytes()).digest() == hashlib.sha256(NEW["config.json"]).digest()


@pytest.mark.parametrize(
    ("id_", "ref"), [("acme/none", "main"), (ID, "none")], ids=["no such repository", "no such name"]
)
async def test_what_is_not_there_is_no_pin(hub, id_, ref):
    with pytest.raises(PinNotFound, match=f"{id_}|{ref}"):
        await hub.revision_of(id_, ref)


async def test_a_commit_that_is_not_there_is_no_pin(hub):
    with pytest.raises(PinNotFound, match=ID):
        await hub.resolve(ModelSpec(id=ID, revision=Revision("0" * 40)))
