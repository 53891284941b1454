"""The `.git` of a work folder, asked by real git."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gpurun.adapters.git import GitPast, history, process
from gpurun.adapters.git.history import nearest_tags
from gpurun.adapters.git.turns import only_writer
from gpurun.domain.errors import SourceUnavailable
from gpurun.domain.forge import Extra
from gpurun.domain.ids import CommitSha
from gpurun.domain.source import GitTag, ModuleUrl, Submodule
from gpurun_agent.spec import Spec
from gpurun_agent.surroundings import Surroundings
from gpurun_agent.tar import Unpacking
from tests.unit.adapters.git.test_mirrors import LFS, POINTER, REPO, Origin


@pytest.fixture
def origin(tmp_path):
    return Origin(tmp_path / "origin")


@pytest.fixture
def past(tmp_path):
    return GitPast(tmp_path / "mirrors")


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """The commands that git got in mirrors."""
    asked: list[str] = []

    async def run_git(*argv: str, **how: Any) -> process.Ended:
        asked.append(argv[argv.index("--literal-pathspecs") + 1] if "--literal-pathspecs" in argv else argv[0])
        return await process.run_git(*argv, **how)

    monkeypatch.setattr("gpurun.adapters.git.mirrors.run_git", run_git)
    return asked


async def work_folder(past: GitPast, origin: Origin, folder: Path, **skip) -> Path:
    """As the agent makes it."""
    sha = CommitSha(origin.git("rev-parse", "HEAD"))
    await past.fetch(origin.source, REPO, sha, skip=list(Extra))
    tags = await past.fetch_history(origin.source, REPO, sha)
    folder.mkdir()
    await unpack(past.archive(REPO, sha), folder)
    (folder / ".git").mkdir()
    await unpack(past.git_folder(REPO, sha, tags), folder / ".git")
    return folder


async def unpack(stream, folder: Path) -> None:
    tar = b"".join([piece async for piece in stream])
    for _ in Unpacking(io.BytesIO(tar), str(folder)):
        pass


def git(folder: Path, *words: str, code: int = 0) -> str:
    environment = {"PATH": os.defpath, "HOME": "/nowhere", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, env=environment, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout.decode().strip()


async def test_b106_describe_rev_parse_and_status_work(origin, past, tmp_path):
    origin.commit({"a.txt": b"1", "sub/run.sh": b"#!/bin/sh\n"})
    origin.git("update-index", "--chmod=+x", "sub/run.sh")
    origin.git("tag", "-a", "-m", "first", "v1.0")
    origin.commit({"a.txt": b"2", ".gitattributes": b"*.txt text eol=crlf\n*.id ident\n"})
    origin.git("tag", "light")
    (origin.path / "link").symlink_to("/data/elsewhere")
    sha = origin.commit({"x.id": b"$Id$\n", "größe ü.txt": b"a\n", "old.txt": b"o\n"})
    work = await work_folder(past, origin, tmp_path / "work")
    assert git(work, "rev-parse", "HEAD") == sha
    for words in (["--tags"], [], ["--tags", "--long", "--dirty", "--match", "v*"]):
        assert git(work, "describe", *words) == origin.git("describe", *words)
    assert git(work, "describe", "--tags").startswith("light-1-g")
    assert git(work, "status", "--porcelain") == ""
    assert git(work, "rev-list", "--count", "HEAD") == "3"
    assert git(work, "log", "-1", "--format=%an %s") == "a x"
    assert git(work, "show", "HEAD:a.txt") == "2"
    assert git(work, "remote", "-v") == ""
    assert git(work, "ls-files") == origin.git("ls-files")
    assert git(work, "archive", "HEAD", "-o", str(tmp_path / "out.tar")) == ""  # setuptools_scm lists files so
    (work / "new").write_text("x")
    (work / "a.txt").write_text("3")
    assert git(work, "status", "--porcelain") == "M a.txt\n?? new"
    assert not (work / ".git/hooks").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
async def test_b106_a_folder_of_another_user_is_trusted_by_the_environment_of_the_job(origin, past, tmp_path):
    sha = origin.commit({"a": b"1"})
    work = await work_folder(past, origin, tmp_path / "work")
    os.chown(work, 12345, 12345)
    assert git(work, "rev-parse", "HEAD", code=128) == ""
    spec = Spec([("token", b"t"), ("git", b"1"), ("env", b"GIT_CONFIG_COUNT=1"), ("env", b"GIT_CONFIG_KEY_0=user.name"),
                 ("env", b"GIT_CONFIG_VALUE_0=n")])  # fmt: skip
    env = Surroundings({"GPURUN_ROOT": str(tmp_path), "HOME": "/nowhere"}).job_env(spec)
    asked = ["git", "-C", str(work), "rev-parse", "HEAD"]
    assert subprocess.run(asked, env=env, check=True, capture_output=True).stdout.decode().strip() == sha
    asked = ["git", "-C", str(work), "config", "user.name"]
    assert subprocess.run(asked, env=env, check=True, capture_output=True).stdout == b"n\n"
    assert "GIT_CONFIG_COUNT" not in Surroundings({}).job_env(Spec([("token", b"t")]))


async def test_without_tags_there_is_the_commit(origin, past, tmp_path):
    sha = origin.commit({"a": b"1"})
    work = await work_folder(past, origin, tmp_path / "work")
    assert sha.startswith(git(work, "describe", "--tags", "--always"))


async def test_tags_of_other_branches_stay_away_and_moved_ones_are_seen(origin, past, tmp_path):
    origin.commit({"a": b"1"})
    origin.git("checkout", "-q", "-b", "other")
    origin.commit({"a": b"2"})
    origin.git("tag", "other-1")
    origin.git("checkout", "-q", "main")
    origin.git("tag", "mine")
    work = await work_folder(past, origin, tmp_path / "work")
    assert git(work, "tag") == "mine"
    origin.git("tag", "-d", "mine")
    origin.git("tag", "-a", "-m", "x", "again")
    assert git(await work_folder(past, origin, tmp_path / "later"), "describe") == "again"


async def test_a_lock_file_of_a_killed_process_blocks_no_tag(origin, past, tmp_path):
    origin.commit({"a": b"1"})
    await work_folder(past, origin, tmp_path / "work")
    origin.git("tag", "-a", "-m", "x", "v1")
    left = tmp_path / f"mirrors/.history/acme/train.git/refs/gpurun-tags/{origin.git('rev-parse', 'v1')}.lock"
    left.parent.mkdir(parents=True)
    left.touch()
    assert git(await work_folder(past, origin, tmp_path / "later"), "describe") == "v1"


async def test_a_tag_whose_name_was_cut_off_is_none(origin, past, tmp_path, monkeypatch):
    sha = origin.commit({"a": b"1"})
    origin.git("tag", "v1.0")
    origin.git("tag", "v1.10")
    whole = len(f"{sha}\trefs/tags/v1.0\n") + len(f"{sha}\trefs/tags/v1.1")
    monkeypatch.setattr("gpurun.adapters.git.past.MAX_LISTED_TAGS_BYTES", whole)
    assert git(await work_folder(past, origin, tmp_path / "work"), "tag") == "v1.0"
    monkeypatch.setattr("gpurun.adapters.git.past.MAX_LISTED_TAGS_BYTES", whole + 2)
    assert git(await work_folder(past, origin, tmp_path / "later"), "tag").split() == ["v1.0", "v1.10"]


def test_a_line_end_of_unicode_does_not_end_the_name_of_a_tag():
    assert nearest_tags(f"{'1' * 40}\trefs/tags/v1\u2028x\n".encode(), ["1" * 40]) == ()


async def test_all_tags_come_at_once(origin, past, tmp_path, asked):
    sha = origin.commit({"a": b"1"})
    await past.fetch(origin.source, REPO, sha)
    await past.fetch_history(origin.source, REPO, sha)
    for number in range(5):
        origin.git("tag", "-a", "-m", "x", f"v{number}")
    asked.clear()
    tags = await past.fetch_history(origin.source, REPO, sha)
    assert [tag.name for tag in tags] == ["v0", "v1", "v2", "v3", "v4"]
    assert asked.count("fetch") == 1
    assert git(await work_folder(past, origin, tmp_path / "work"), "tag", "--points-at", sha).split() == [
        "v0", "v1", "v2", "v3", "v4"]  # fmt: skip
    assert asked.count("fetch") == 1


async def test_a_long_history_is_cut_and_merges_count(origin, past, tmp_path, monkeypatch):
    for number in range(6):
        origin.commit({"a": b"%d" % number})
    origin.git("tag", "v0", "HEAD~5")
    origin.git("tag", "v1", "HEAD~2")
    origin.git("checkout", "-q", "-b", "side", "HEAD~1")
    origin.commit({"b": b"1"})
    origin.git("checkout", "-q", "main")
    origin.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    monkeypatch.setattr(history, "MAX_COMMITS", 5)
    monkeypatch.setattr("gpurun.adapters.git.past.MAX_COMMITS", 5)
    work = await work_folder(past, origin, tmp_path / "work")
    assert git(work, "tag") == "v1"
    assert git(work, "describe", "--tags") == origin.git("describe", "--tags")
    assert git(work, "rev-list", "--count", "HEAD") == "5"
    assert git(work, "status", "--porcelain") == ""


async def test_submodules_and_lfs_files_are_no_changes(origin, past, tmp_path):
    lib = Origin(tmp_path / "lib")
    lib_sha = lib.commit({"x": b"1"})
    modules = b'[submodule "l"]\n\tpath = l\n\turl = ../l\n'
    origin.commit({".gitattributes": LFS, "w.bin": POINTER, ".gitmodules": modules})
    origin.git("update-index", "--add", "--cacheinfo", f"160000,{lib_sha},l")
    origin.git("commit", "-q", "-m", "submodule")
    sha = CommitSha(origin.git("rev-parse", "HEAD"))
    await past.fetch(origin.source, REPO, sha, get=list(Extra))
    await past.fetch(lib.source, ModuleUrl(lib.source.url), lib_sha)
    tags = await past.fetch_history(origin.source, REPO, sha)
    work = tmp_path / "work"
    work.mkdir()
    module = Submodule(path="l", url=lib.source.url, commit=lib_sha)
    await unpack(past.archive(REPO, sha, submodules=[module]), work)
    (work / "w.bin").write_bytes(b"content of another length")
    (work / ".git").mkdir()
    await unpack(past.git_folder(REPO, sha, tags, lfs=True), work / ".git")
    assert (work / "l/x").read_bytes() == b"1"
    assert git(work, "status", "--porcelain") == ""


# --- made once


async def fetched(past: GitPast, origin: Origin, files: dict[str, bytes]) -> tuple[CommitSha, tuple[GitTag, ...]]:
    sha = origin.commit(files)
    await past.fetch(origin.source, REPO, sha, skip=list(Extra))
    return sha, await past.fetch_history(origin.source, REPO, sha)


async def whole(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in stream])


async def test_a_git_folder_is_made_once_for_all_who_ask(origin, past, tmp_path, asked):
    sha, tags = await fetched(past, origin, {"a": b"1"})
    first, second = await asyncio.gather(*(whole(past.git_folder(REPO, sha, tags)) for _ in range(2)))
    assert first == second
    assert asked.count("pack-objects") == 1
    asked.clear()
    assert await whole(past.git_folder(REPO, sha, tags)) == first
    assert await whole(GitPast(tmp_path / "mirrors").git_folder(REPO, sha, tags)) == first  # a new process
    assert asked == []
    with_tag = (GitTag(name="v1", object=sha, commit=sha),)
    for other in (past.git_folder(REPO, sha, with_tag), past.git_folder(REPO, sha, tags, lfs=True)):
        assert await whole(other)
        assert asked.count("pack-objects") == 1
        asked.clear()


async def test_only_the_newest_git_folders_are_kept(origin, past, tmp_path, asked):
    (first, tags), *others = [await fetched(past, origin, {"a": b"%d" % number}) for number in range(4)]
    reading = past.git_folder(REPO, first, tags)
    begun = await anext(reading)
    for sha, tags in others:
        await whole(past.git_folder(REPO, sha, tags))
    assert len(list((tmp_path / "mirrors/.folders/acme/train.git").iterdir())) == 2
    again = await whole(past.git_folder(REPO, first, tags))
    assert begun + await whole(reading) == again  # also who was reading when it went


async def test_what_a_killed_process_left_of_a_git_folder_goes(origin, past, tmp_path):
    sha, tags = await fetched(past, origin, {"a": b"1"})
    kept = tmp_path / "mirrors/.folders/acme/train.git"
    (kept / "tmpleft/work/objects").mkdir(parents=True)
    (kept / "tmpleft/tar").write_bytes(b"half")
    await whole(past.git_folder(REPO, sha, tags))
    assert [path.suffix for path in kept.iterdir()] == [".tar"]


async def test_another_process_that_makes_a_git_folder_means_come_back_soon(origin, past, tmp_path):
    sha, tags = await fetched(past, origin, {"a": b"1"})
    with only_writer(tmp_path / "mirrors/.folders/acme/train.git"), pytest.raises(SourceUnavailable) as caught:
        await whole(past.git_folder(REPO, sha, tags))
    assert caught.value.retry_after_s == 2.0
    assert await whole(past.git_folder(REPO, sha, tags))


async def test_a_git_folder_that_is_too_large_or_takes_too_long_leaves_nothing(origin, past, tmp_path, monkeypatch):
    sha, tags = await fetched(past, origin, {"a": os.urandom(100_000)})
    monkeypatch.setattr("gpurun.adapters.git.past.MAX_ARCHIVE_BYTES", 100_000)
    with pytest.raises(SourceUnavailable, match="larger than was counted"):
        await whole(past.git_folder(REPO, sha, tags))
    with pytest.raises(SourceUnavailable, match="took longer than 0 s"):
        await whole(GitPast(tmp_path / "mirrors", fetch_timeout_s=0).git_folder(REPO, sha, tags))
    assert list((tmp_path / "mirrors/.folders/acme/train.git").iterdir()) == []


async def test_nothing_is_compressed_for_one_use(origin, past, tmp_path):
    sha, tags = await fetched(past, origin, {"zeros": bytes(1_000_000)})
    bare = tmp_path / "mirrors/acme/train.git"
    [pack] = bare.glob("objects/pack/*.pack")  # from which git copies what is compressed already
    loose = pack.rename(tmp_path / "moved.pack").read_bytes()
    subprocess.run(["git", "-C", str(bare), "unpack-objects", "-q"], input=loose, check=True)
    assert len(await whole(past.git_folder(REPO, sha, tags))) > 1_000_000
