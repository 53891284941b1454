"""huggingface_hub itself against the fake hub: what it believes there, our adapter may believe too."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import HfApi, errors
from pydantic import SecretStr

from gpurun.adapters.hub import HuggingFaceHub
from gpurun.domain.plan import ModelSpec
from tests.fakes.clock import FakeClock
from tests.fakes.hub import FakeHub

ID = "acme/tiny"
TOKEN = "hf_0123456789SECRET"
FILES = {
    "weights.safetensors": os.urandom(300_000),
    "config.json": b"{}",
    "sub/dir/ä #1.txt": b"hi",
    "tiny.bin": b"",
}


def snapshot_download(hub: FakeHub, revision: str, folder: Path, token: str | bool = False) -> Path:
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(ID, revision=revision, cache_dir=folder, endpoint=hub.url, token=token))


async def test_snapshot_download_and_our_adapter_get_the_same_bytes(fake, hub, tmp_path):
    revision = fake.add_model(ID, FILES)
    snapshot = await asyncio.to_thread(snapshot_download, fake, revision, tmp_path / "hf")
    theirs = {str(path.relative_to(snapshot)): path.read_bytes() for path in snapshot.rglob("*") if path.is_file()}
    pin = await hub.resolve(ModelSpec(id=ID, revision=revision))
    ours = {file.path: b"".join([piece async for piece in hub.open(pin, file)]) for file in pin.files}
    assert theirs == ours == FILES


async def test_our_etags_are_the_names_of_blobs_in_their_cache(fake, hub, tmp_path):
    revision = fake.add_model(ID, FILES)
    snapshot = await asyncio.to_thread(snapshot_download, fake, revision, tmp_path / "hf")
    pin = await hub.resolve(ModelSpec(id=ID, revision=revision))
    theirs = {str(path.relative_to(snapshot)): path.resolve().name for path in snapshot.rglob("*") if path.is_file()}
    assert {file.path: file.etag for file in pin.files} == theirs


async def test_a_private_model_over_the_second_host(fake, tmp_path):
    revision = fake.add_model(ID, FILES, private=True)
    fake.add_token(TOKEN, ID)
    snapshot = await asyncio.to_thread(snapshot_download, fake, revision, tmp_path / "hf", TOKEN)
    assert (snapshot / "weights.safetensors").read_bytes() == FILES["weights.safetensors"]
    assert {request.token for request in fake.seen("/repos/")} == {None}


async def test_small_files_through_a_relative_redirect(fake, tmp_path):
    fake.redirects_small_files = True
    revision = fake.add_model(ID, FILES)
    snapshot = await asyncio.to_thread(snapshot_download, fake, revision, tmp_path / "hf")
    assert (snapshot / "config.json").read_bytes() == b"{}"
    assert fake.seen("/resolve-cache/")


async def test_pages_are_followed(fake, tmp_path):
    fake.page_size = 1
    revision = fake.add_model(ID, FILES)
    snapshot = await asyncio.to_thread(snapshot_download, fake, revision, tmp_path / "hf")
    assert len([path for path in snapshot.rglob("*") if path.is_file()]) == 4


async def test_names_and_the_file_list(fake):
    revision = fake.add_model(ID, FILES)
    api = HfApi(endpoint=fake.url, token=False)
    info = await asyncio.to_thread(api.model_info, ID, revision="main", files_metadata=True)
    assert info.sha == revision
    assert {sibling.rfilename: sibling.size for sibling in info.siblings} == {k: len(v) for k, v in FILES.items()}


async def test_their_client_finds_a_ref_as_we_ask_for_it(fake, hub):
    revision = fake.add_model(ID, FILES)
    fake.models[ID].refs["refs/pr/3"] = revision
    api = HfApi(endpoint=fake.url, token=False)
    info = await asyncio.to_thread(api.model_info, ID, revision="refs/pr/3", expand=["sha"])
    assert info.sha == await hub.revision_of(ID, "refs/pr/3") == revision
    assert info.siblings is None
    theirs, ours = fake.requests[-2:]
    assert theirs.path == ours.path
    with pytest.raises(errors.RevisionNotFoundError):
        await asyncio.to_thread(api.model_info, ID, revision="v9")


@pytest.mark.parametrize(
    ("state", "revision", "file", "error"),
    [
        ({}, "1" * 40, "config.json", errors.RevisionNotFoundError),
        ({}, None, "none.txt", errors.RemoteEntryNotFoundError),
        ({"private": True}, None, "config.json", errors.RepositoryNotFoundError),
        ({"gated": "manual"}, None, "config.json", errors.GatedRepoError),
    ],
)
async def test_refusals_are_their_errors(fake, tmp_path, state, revision, file, error):
    good = fake.add_model(ID, FILES, **state)
    api = HfApi(endpoint=fake.url, token=False)
    with pytest.raises(error) as caught:
        await asyncio.to_thread(api.hf_hub_download, ID, file, revision=revision or good, cache_dir=tmp_path)
    assert error is errors.GatedRepoError or not isinstance(caught.value, errors.GatedRepoError)


async def test_a_disabled_model_is_their_error(fake):
    fake.add_model(ID, FILES)
    fake.models[ID].disabled = True
    with pytest.raises(errors.DisabledRepoError):
        await asyncio.to_thread(HfApi(endpoint=fake.url, token=False).model_info, ID)


async def test_they_take_a_flipped_bit_and_we_do_not(fake, tmp_path):
    """The reason why our adapter hashes everything."""
    revision = fake.add_model(ID, FILES)
    fake.corrupt(ID, "weights.safetensors")
    snapshot = await asyncio.to_thread(snapshot_download, fake, revision, tmp_path / "hf")
    assert (snapshot / "weights.safetensors").read_bytes() != FILES["weights.safetensors"]


def test_a_revision_is_the_commit_that_git_would_make(tmp_path, monkeypatch):
    files = {"b.txt": b"b", "a/x.txt": b"x", "a.txt": b"a", "a/b/y.txt": b"y", "a-b.txt": b"-"}
    revision = FakeHub().add_model(ID, files)
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "fake hub")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "hub@localhost")
        monkeypatch.setenv(f"GIT_{role}_DATE", "1767225600 +0000")
    for argv in (["init", "-q"], ["add", "-A"], ["commit", "-q", "--no-gpg-sign", "-m", "Upload"]):
        subprocess.run(["git", "-C", str(tmp_path), *argv], check=True)
    done = subprocess.run(["git", "-C", str(tmp_path), "rev-parse", "HEAD"], capture_output=True, check=True)
    assert done.stdout.decode().strip() == revision


def test_equal_files_are_an_equal_revision_and_other_files_another():
    assert FakeHub().add_model("a/b", FILES) == FakeHub().add_model("c/d", dict(reversed(FILES.items())))
    assert FakeHub().add_model("a/b", FILES) != FakeHub().add_model("a/b", FILES | {"config.json": b"{ }"})


def test_the_adapter_is_imported_without_the_client_libraries():
    """`gpurun --help` must not pay for them."""
    program = "import sys, gpurun.adapters.hub; print({'huggingface_hub', 'httpx2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "set()"


def test_the_adapter_can_be_made_without_a_connection(tmp_path):
    assert HuggingFaceHub("https://example.org/", SecretStr(""), tmp_path / "none", FakeClock())
    assert not (tmp_path / "none").exists()
