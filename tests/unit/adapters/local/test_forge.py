"""The local forge against real checkouts: what it reads, and that it leaves no trace."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpurun.adapters.git import GitMirrors
from gpurun.adapters.local import LocalForge
from gpurun.domain.errors import ForgeRefused, PinNotFound, SourceUnavailable, UserError
from gpurun.domain.forge import Check, CheckStatus, Extra, RepoRef
from gpurun.domain.ids import CommitSha, RepoName
from gpurun.domain.source import ModuleUrl, Submodule
from gpurun.ports.forge import Forge
from tests.fakes.github.lfs_http import pointer

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org")


@pytest.fixture
def top(tmp_path):
    top = tmp_path / "my project!"
    top.mkdir()
    git(top, "init", "-q", "-b", "feature")
    (top / ".gpurun.yml").write_text("version: 1\n")
    (top / ".gitignore").write_text("*.log\n")
    (top / "sub").mkdir()
    (top / "sub/train.py").write_text("print(1)\n")
    commit(top)
    return top


@pytest.fixture
def forge(top) -> LocalForge:
    return LocalForge(top / "sub")


def git(folder, *argv, check=True) -> str:
    done = subprocess.run(["git", "-C", str(folder), *IDENTITY, *argv], capture_output=True, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout.decode().strip()


def commit(folder, *argv) -> CommitSha:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x", *argv)
    return head(folder)


def head(folder) -> CommitSha:
    return CommitSha(git(folder, "rev-parse", "HEAD"))


def files_at(folder, sha) -> dict[str, str]:
    names = git(folder, "-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", sha).splitlines()
    return {name: git(folder, "show", f"{sha}:{name}") for name in names}


REPO = RepoRef(installation_id=0, name=RepoName("local/x"), id=0)


async def test_it_is_a_forge(forge):
    port: Forge = forge
    assert (await port.permission(REPO, "anyone")).admin


# --- state


async def test_a_clean_checkout(forge, top):
    state = await forge.checkout_state()
    assert (state.sha, state.branch, state.dirty, state.top) == (head(top), "feature", (), top)
    assert state.repo == RepoRef(installation_id=0, name=RepoName("local/my-project"), id=0)


async def test_every_kind_of_change_is_dirty(forge, top):
    (top / "sub/train.py").write_text("print(2)\n")
    (top / "new file\n.txt").write_text("n")
    (top / "staged.txt").write_text("s")
    (top / "ignored.log").write_text("i")
    git(top, "add", "staged.txt")
    (top / ".gitignore").rename(top / "renamed")
    assert (await forge.checkout_state()).dirty == (
        ".gitignore", "ignored.log", "new file\n.txt", "renamed", "staged.txt", "sub/train.py",
    )  # fmt: skip


async def test_a_detached_head_has_no_branch(forge, top):
    git(top, "checkout", "-q", "--detach")
    assert (await forge.checkout_state()).branch is None


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://github.com/acme/train.git", "acme/train"),
        ("https://github.com/acme/train", "acme/train"),
        ("https://x-access-token:secret@github.com/acme/train.git", "acme/train"),
        ("git@github.com:acme/my.repo.git", "acme/my.repo"),
        ("ssh://git@github.com/acme/train.git", "acme/train"),
        ("https://example.org/acme/train.git", "local/my-project"),
        ("https://github.com.example.org/acme/train.git", "local/my-project"),
        ("https://github.com/acme/..", "local/my-project"),
        ("/srv/git/train.git", "local/my-project"),
    ],
)
async def test_the_name_comes_from_a_github_origin_only(forge, top, url, name):
    git(top, "remote", "add", "origin", url)
    assert (await forge.checkout_state()).repo.name == name


async def test_a_folder_whose_name_has_no_usable_letter(tmp_path):
    top = tmp_path / "…"
    top.mkdir()
    git(top, "init", "-q")
    (top / "a").write_text("a")
    commit(top)
    assert (await LocalForge(top).checkout_state()).repo.name == "local/checkout"


async def test_outside_of_a_checkout_says_so(tmp_path):
    with pytest.raises(UserError, match="not inside a git checkout"):
        await LocalForge(tmp_path).checkout_state()
    with pytest.raises(UserError, match="is not a folder"):
        await LocalForge(tmp_path / "none").checkout_state()


async def test_no_commit_yet_says_so(tmp_path):
    git(tmp_path, "init", "-q")
    with pytest.raises(UserError, match="has no commit yet"):
        await LocalForge(tmp_path).checkout_state()


async def test_started_from_a_hook_it_still_looks_at_its_folder(forge, top, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "elsewhere-index"))
    state = await forge.checkout_state()
    monkeypatch.undo()
    assert (state.sha, state.dirty) == (head(top), ())


async def test_head_looks_like_an_open_pull_request(forge, top):
    pull = await forge.pull_request(REPO, 0)
    assert pull.open
    assert pull.head_sha == pull.base_sha == head(top)
    assert not pull.is_fork_of(REPO.name)


# --- files


async def test_a_file_is_read_at_the_commit_not_from_the_folder(forge, top):
    sha = head(top)
    (top / ".gpurun.yml").write_text("changed\n")
    assert await forge.read_file(REPO, sha, ".gpurun.yml", max_bytes=100) == b"version: 1\n"
    assert await forge.read_file(REPO, sha, "sub/train.py", max_bytes=100) == b"print(1)\n"


@pytest.mark.parametrize("path", ["none", "sub/", "", "../x", "/etc/passwd", ":/sub/train.py", "sub/*"])
async def test_what_is_not_there_is_none(forge, top, path):
    assert await forge.read_file(REPO, head(top), path, max_bytes=100) is None


@pytest.mark.parametrize(
    ("path", "what"), [("link", "a symbolic link"), ("loop", "a symbolic link"), ("sub", "a folder"), ("m", "a submod")]
)
async def test_what_is_no_regular_file_is_named(forge, top, path, what):
    (top / "link").symlink_to(".gpurun.yml")
    (top / "loop").symlink_to("loop")
    git(top, "add", "link", "loop")
    git(top, "update-index", "--add", "--cacheinfo", f"160000,{'2' * 40},m")
    git(top, "commit", "-q", "-m", "x")
    with pytest.raises(UserError, match=f"^{path} is {what}"):
        await forge.read_file(REPO, head(top), path, max_bytes=100)
    assert await forge.read_files(REPO, head(top), [path], max_bytes=100) == ()


async def test_a_file_over_the_limit_is_refused(forge, top):
    sha = head(top)
    assert await forge.read_file(REPO, sha, ".gpurun.yml", max_bytes=11)
    with pytest.raises(UserError, match="has 11 bytes; at most 10"):
        await forge.read_file(REPO, sha, ".gpurun.yml", max_bytes=10)


async def test_of_several_files_those_that_are_there_are_read(forge, top):
    paths = ["none/.gpurun.yml", "sub/train.py", "../x", "sub", ".gpurun.yml"]
    found = await forge.read_files(REPO, head(top), paths, max_bytes=10)
    assert [(one.path, one.content) for one in found] == [("sub/train.py", b"print(1)\n"), (".gpurun.yml", None)]
    assert await forge.read_files(REPO, head(top), ["none"], max_bytes=10) == ()


async def test_reading_at_an_unknown_commit_fails(forge):
    with pytest.raises(SourceUnavailable):
        await forge.read_file(REPO, CommitSha("1" * 40), ".gpurun.yml", max_bytes=10)


# --- snapshots


def change_everything(top) -> None:
    (top / "sub/train.py").write_text("print(2)\n")
    (top / "new.txt").write_text("new\n")
    (top / "staged.txt").write_text("staged\n")
    git(top, "add", "staged.txt")
    (top / "staged.txt").write_text("staged, then changed\n")
    (top / "noise.log").write_text("ignored\n")
    (top / "-rf").write_text("dash\n")


async def test_a_snapshot_holds_the_working_tree_on_top_of_head(forge, top):
    before = head(top)
    change_everything(top)
    (top / ".gpurun.yml").unlink()
    sha = await forge.snapshot()
    assert files_at(top, sha) == {
        "-rf": "dash",
        ".gitignore": "*.log",
        "new.txt": "new",
        "staged.txt": "staged, then changed",
        "sub/train.py": "print(2)",
    }
    assert git(top, "rev-parse", f"{sha}^") == before


async def test_a_snapshot_holds_a_change_that_git_cannot_tell_by_size_and_time(forge, top):
    """It looks into files that are no older than its index, whose time must therefore stay what it is."""
    file, then = top / "same-size.txt", (10**18, 10**18)
    git(top, "config", "core.trustctime", "false")
    file.write_text("of the commit")
    os.utime(file, ns=then)
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "same size")
    file.write_text("not committed")
    os.utime(file, ns=then)
    os.utime(top / ".git/index", ns=then)
    sha = await forge.snapshot()
    assert git(top, "show", f"{sha}:same-size.txt") == "not committed"


def traces(top) -> tuple[object, ...]:
    git_dir = top / ".git"
    return (
        git(top, "for-each-ref"),
        git(top, "stash", "list"),
        git(top, "ls-files", "--stage"),
        (git_dir / "index").read_bytes(),
        (git_dir / "index").stat().st_mtime_ns,
        sorted(path.name for path in git_dir.iterdir()),
        (git_dir / "logs/HEAD").read_bytes(),
    )


async def test_a_snapshot_touches_nothing_of_the_user(forge, top):
    change_everything(top)
    before = traces(top)
    await forge.snapshot()
    await forge.checkout_state()
    assert traces(top) == before


async def test_an_unchanged_tree_gives_the_same_id_and_a_changed_one_another(forge, top):
    change_everything(top)
    first = await forge.snapshot()
    git(top, "config", "user.name", "somebody else")
    assert await LocalForge(top).snapshot() == first
    (top / "new.txt").write_text("newer\n")
    assert await forge.snapshot() != first


async def test_a_clean_tree_can_be_snapshot_too(forge, top):
    sha = await forge.snapshot()
    assert git(top, "rev-parse", f"{sha}^{{tree}}") == git(top, "rev-parse", "HEAD^{tree}")


async def test_a_snapshot_in_the_middle_of_a_conflict(forge, top):
    base = head(top)
    (top / "sub/train.py").write_text("ours\n")
    commit(top)
    git(top, "checkout", "-q", "-b", "other", base)
    (top / "sub/train.py").write_text("theirs\n")
    commit(top)
    git(top, "merge", "-q", "feature", check=False)
    sha = await forge.snapshot()
    assert "<<<<<<<" in files_at(top, sha)["sub/train.py"]


async def test_a_snapshot_of_a_linked_worktree(top, tmp_path):
    git(top, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "linked")
    (tmp_path / "linked/new.txt").write_text("new\n")
    forge = LocalForge(tmp_path / "linked")
    sha = await forge.snapshot()
    assert files_at(top, sha)["new.txt"] == "new"


async def test_huge_new_files_do_not_end_up_in_the_repository(forge, top):
    (top / "checkpoint.bin").write_bytes(b"x" * 3_000_000)
    with pytest.raises(UserError, match=r"the largest is 'checkpoint\.bin' with 2 MiB") as caught:
        await forge.snapshot(max_bytes=2 << 20)
    assert ".gitignore" in caught.value.hint


async def test_the_mirror_can_fetch_a_snapshot(forge, top, tmp_path):
    change_everything(top)
    sha = await forge.snapshot()
    state = await forge.checkout_state()
    mirrors = GitMirrors(tmp_path / "mirrors")
    tree = (await mirrors.fetch(await forge.git_source(state.repo), state.repo.name, sha)).tree
    assert tree == git(top, "rev-parse", f"{sha}^{{tree}}")


async def test_the_mirror_can_fetch_from_a_linked_worktree(top, tmp_path):
    git(top, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "linked")
    (tmp_path / "linked/new.txt").write_text("new\n")
    forge = LocalForge(tmp_path / "linked")
    sha = await forge.snapshot()
    mirrors = GitMirrors(tmp_path / "mirrors")
    assert await mirrors.fetch(await forge.git_source(REPO), REPO.name, sha)


# --- what a commit points to


def with_submodule(top, tmp_path):
    """The checkout has it, and what it holds of git LFS too."""
    lib = tmp_path / "lib"
    lib.mkdir()
    git(lib, "init", "-q")
    (lib / ".gitattributes").write_text("*.bin filter=lfs\n")
    (lib / "w.bin").write_bytes(pointer(b"weights"))
    commit(lib)
    git(
        top,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        "--name",
        "a lib",
        str(lib),
        "vendor/lib",
    )
    oid = hashlib.sha256(b"weights").hexdigest()
    kept = top / ".git/modules/a lib/lfs/objects" / oid[:2] / oid[2:4]
    kept.mkdir(parents=True)
    (kept / oid).write_bytes(b"weights")
    commit(top)
    return CommitSha(head(top)), kept / oid


@pytest.mark.parametrize("worktree", [True, False])
async def test_b108_submodules_and_lfs_files_come_from_the_checkout_itself(forge, top, tmp_path, worktree):
    sha, content = with_submodule(top, tmp_path)
    if not worktree:
        git(top, "submodule", "--quiet", "deinit", "--force", "vendor/lib")
    (tmp_path / "lib").rename(tmp_path / "gone")
    mirrors = GitMirrors(tmp_path / "mirrors")
    found = await mirrors.fetch(await forge.git_source(REPO), REPO.name, sha, get=Extra)
    (link,) = found.links
    source = await forge.submodule_source(REPO, link, reader="")
    inner = await mirrors.fetch(source, ModuleUrl(source.url), link.commit, get=Extra)
    assert inner.n_lfs == 1
    await mirrors.fetch_lfs(source, ModuleUrl(source.url), link.commit)
    module = Submodule(path=link.path, url=source.url, commit=link.commit)
    tar = b"".join([piece async for piece in mirrors.archive(REPO.name, sha, submodules=[module], lfs=True)])
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        assert opened.extractfile("vendor/lib/w.bin").read() == b"weights"
    content.unlink()
    others = GitMirrors(tmp_path / "others")
    await others.fetch(source, ModuleUrl(source.url), link.commit, get=Extra)
    with pytest.raises(PinNotFound, match=r"content of 'w\.bin' of git LFS is not in this checkout") as caught:
        await others.fetch_lfs(source, ModuleUrl(source.url), link.commit)
    assert caught.value.hint == "`git lfs pull` gets it."


async def test_b108_a_submodule_that_is_not_here_says_how_to_get_it(forge, top, tmp_path):
    sha, _ = with_submodule(top, tmp_path)
    git(top, "submodule", "--quiet", "deinit", "--force", "vendor/lib")
    shutil.rmtree(top / ".git/modules")
    (link,) = (await forge.contents(sha, skip=(), get=Extra)).links
    with pytest.raises(PinNotFound, match="The submodule 'vendor/lib' is not in this checkout") as caught:
        await forge.submodule_source(REPO, link, reader="")
    assert caught.value.hint == "`git submodule update --init --recursive` gets it."
    for name in ("../../.git/hooks", "-x", "a/../b", "/etc", ""):
        with pytest.raises(PinNotFound, match="leads out of its folder"):
            await forge.submodule_source(REPO, replace(link, name=name), reader="")


# --- there is nobody to talk to


CHECK = Check(name="n", external_id="e", status=CheckStatus.QUEUED, conclusion=None, title="t", summary="s")


@pytest.mark.parametrize(
    "call",
    [
        lambda forge: forge.comment(REPO, 1),
        lambda forge: forge.react(REPO, 1, "eyes"),
        lambda forge: forge.create_comment(REPO, 1, "hi"),
        lambda forge: forge.update_comment(REPO, 1, "hi"),
        lambda forge: forge.find_comment(REPO, 1, marker="m", since=datetime(2026, 1, 1, tzinfo=UTC)),
        lambda forge: forge.create_check(REPO, CommitSha("1" * 40), CHECK),
        lambda forge: forge.update_check(REPO, 1, CHECK),
        lambda forge: forge.find_check(REPO, CommitSha("1" * 40), name="n", external_id="e"),
    ],
)
async def test_comments_and_checks_do_not_exist(forge, call):
    with pytest.raises(ForgeRefused) as caught:
        await call(forge)
    assert caught.value.status == 404


# --- what a person can mend


async def test_a_file_that_git_cannot_read_is_named(forge, top, tmp_path, monkeypatch):
    """These tests may run as root, who reads everything: git's words are those of version 2.39."""
    (top / "new.bin").write_text("x")
    said = (
        "error: open(\"new.bin\"): Permission denied\nerror: unable to index file 'new.bin'\nfatal: adding files failed"
    )
    (tmp_path / "bin").mkdir()
    lines = f'case " $* " in *" add "*) cat >&2 <<"E"\n{said}\nE\nexit 128;; esac\nexec {shutil.which("git")} "$@"\n'
    (tmp_path / "bin/git").write_text(f"#!/bin/sh\n{lines}")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    with pytest.raises(UserError) as caught:
        await forge.snapshot()
    assert str(caught.value) == "new.bin cannot be read: Permission denied."
    assert f"`chmod u+r new.bin` in {top}" in caught.value.hint


async def test_outside_of_a_checkout_git_has_no_word(tmp_path):
    with pytest.raises(UserError) as caught:
        await LocalForge(tmp_path).checkout_state()
    assert str(caught.value) == f"{tmp_path} is not inside a git checkout."
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    with pytest.raises(UserError) as caught:
        await LocalForge(tmp_path).checkout_state()
    assert str(caught.value) == f"git does not take {tmp_path} for a checkout."
    assert caught.value.hint == "It says: fatal: not a git repository: /nowhere"


async def test_in_a_folder_that_was_deleted(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UserError, match=r"^The current folder was deleted\.$"):
        await LocalForge(Path()).checkout_state()
