"""The mirror against real git: what it fetches, what it refuses, and that an archive is the tree."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import http.server
import io
import os
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest
from pydantic import SecretStr

from gpurun.adapters.git import GitMirrors, missing, tree
from gpurun.adapters.git.process import run_git
from gpurun.domain.errors import PinNotFound, SourceUnavailable
from gpurun.domain.forge import Extra, GitSource
from gpurun.domain.ids import CommitSha, RepoName
from gpurun.domain.quantity import quoted
from ops.local_services import free_port
from tests.fakes.lfs import pointer_of

REPO = RepoName("acme/train")
NOWHERE = CommitSha("1" * 40)


class Origin:
    """A real repository with commits to fetch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *argv: str, stdin: bytes = b"") -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", "-C", str(self.path), *identity, *argv], input=stdin, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode(errors="surrogateescape").strip()

    def commit(self, files: dict[str, bytes], message: str = "x") -> CommitSha:
        for name, content in files.items():
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return CommitSha(self.git("rev-parse", "HEAD"))

    def tree(self, rev: str = "HEAD") -> str:
        return self.git("rev-parse", f"{rev}^{{tree}}")

    @property
    def source(self) -> GitSource:
        return GitSource(url=str(self.path))


@pytest.fixture
def origin(tmp_path):
    return Origin(tmp_path / "origin")


@pytest.fixture
def mirrors(tmp_path):
    return GitMirrors(tmp_path / "mirrors")


async def tar_of(mirrors: GitMirrors, sha: CommitSha, repo: RepoName = REPO) -> bytes:
    pieces = [piece async for piece in mirrors.archive(repo, sha)]
    assert all(0 < len(piece) <= 256 * 1024 for piece in pieces)
    return b"".join(pieces)


def members(tar: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(tar), encoding="utf-8", errors="surrogateescape") as opened:
        return {member.name: member for member in opened}


def content(tar: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(tar), encoding="utf-8", errors="surrogateescape") as opened:
        member = opened.extractfile(name)
        assert member is not None
        return member.read()


async def test_the_fetched_tree_is_the_tree_of_the_commit(origin, mirrors):
    sha = origin.commit({"a.txt": b"a"})
    assert (await mirrors.fetch(origin.source, REPO, sha)).tree == origin.tree()


async def test_a_commit_that_is_there_is_not_fetched_again(origin, mirrors):
    sha = origin.commit({"a.txt": b"a"})
    tree = (await mirrors.fetch(origin.source, REPO, sha)).tree
    assert (await mirrors.fetch(GitSource(url="/no/such/folder"), REPO, sha)).tree == tree


async def test_a_new_process_finds_what_the_old_one_fetched(origin, mirrors, tmp_path):
    sha = origin.commit({"a.txt": b"a"})
    await mirrors.fetch(origin.source, REPO, sha)
    later = GitMirrors(tmp_path / "mirrors")
    assert (await later.fetch(GitSource(url="/no/such/folder"), REPO, sha)).tree == origin.tree()


async def test_only_the_one_commit_comes_and_gc_keeps_it(origin, mirrors, tmp_path):
    first = origin.commit({"a.txt": b"a"})
    second = origin.commit({"a.txt": b"b"})
    await mirrors.fetch(origin.source, REPO, second)
    bare = str(tmp_path / "mirrors/acme/train.git")
    subprocess.run(["git", "-C", bare, "gc", "-q", "--prune=now"], check=True)
    assert subprocess.run(["git", "-C", bare, "cat-file", "-e", second], check=False).returncode == 0
    lost = subprocess.run(["git", "-C", bare, "cat-file", "-e", first], check=False, capture_output=True)
    assert lost.returncode != 0


async def test_a_commit_that_no_ref_reaches_comes_from_a_folder(origin, mirrors):
    origin.commit({"a.txt": b"a"})
    dangling = CommitSha(origin.git("commit-tree", "-m", "dangling", origin.tree()))
    assert (await mirrors.fetch(origin.source, REPO, dangling)).tree == origin.tree()


async def test_an_unknown_commit_is_not_found(origin, mirrors):
    origin.commit({"a.txt": b"a"})
    with pytest.raises(PinNotFound, match=f"acme/train has no commit {NOWHERE}"):
        await mirrors.fetch(origin.source, REPO, NOWHERE)


@pytest.mark.parametrize("what", ["tree", "blob", "tag"])
async def test_an_id_of_something_else_than_a_commit_is_not_found(origin, mirrors, what):
    origin.commit({"a.txt": b"a"})
    origin.git("tag", "-a", "-m", "t", "v1")
    other = CommitSha(origin.git("rev-parse", {"tree": "HEAD^{tree}", "blob": "HEAD:a.txt", "tag": "v1"}[what]))
    for _ in range(2):  # the second time it is in the mirror already
        with pytest.raises(PinNotFound, match="is not a commit"):
            await mirrors.fetch(origin.source, REPO, other)


async def test_no_repository_at_the_source_is_unavailable(mirrors, tmp_path):
    with pytest.raises(SourceUnavailable, match="does not appear to be a git repository"):
        await mirrors.fetch(GitSource(url=str(tmp_path / "nothing")), REPO, NOWHERE)


@pytest.mark.parametrize("url", ["ext::touch pwned", "--upload-pack=touch pwned", "ssh://-oProxyCommand=touch/x"])
async def test_b124_a_url_is_never_an_option_nor_a_command(mirrors, tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceUnavailable):
        await mirrors.fetch(GitSource(url=url), REPO, NOWHERE)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", ["../evil", "a/..", "./a", ".hidden/x"])
async def test_a_repository_name_never_leaves_the_folder(mirrors, origin, name):
    with pytest.raises(PinNotFound):
        await mirrors.fetch(origin.source, RepoName(name), NOWHERE)


async def test_a_tree_with_a_dot_git_entry_is_refused(origin, mirrors):
    blob = origin.git("hash-object", "-w", "--stdin", stdin=b"[core]\n\thooksPath=.\n")
    raw = b"100644 .git\0" + bytes.fromhex(blob)
    tree = origin.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=raw)
    bad = CommitSha(origin.git("commit-tree", "-m", "evil", tree))
    with pytest.raises(PinNotFound, match="objects that git refuses"):
        await mirrors.fetch(origin.source, REPO, bad)


async def test_many_fetches_at_once_of_one_repository_all_succeed(origin, mirrors):
    shas = [origin.commit({"a.txt": bytes([65 + index])}) for index in range(4)]
    found = await asyncio.gather(*(mirrors.fetch(origin.source, REPO, sha) for sha in [*shas, *shas]))
    assert [one.tree for one in found] == [origin.tree(sha) for sha in [*shas, *shas]]


async def test_packs_do_not_pile_up(origin, mirrors, tmp_path, monkeypatch):
    monkeypatch.setattr("gpurun.adapters.git.mirrors._MAX_PACKS", 3)
    shas = [origin.commit({"a.txt": bytes([65 + index])}) for index in range(5)]
    for sha in shas:
        await mirrors.fetch(origin.source, REPO, sha)
    assert len(list((tmp_path / "mirrors/acme/train.git").glob("objects/pack/*.pack"))) < 4
    assert [content(await tar_of(mirrors, sha), "a.txt") for sha in shas] == [b"A", b"B", b"C", b"D", b"E"]


async def test_a_lock_file_of_a_killed_fetch_does_not_block_for_ever(origin, mirrors, tmp_path):
    await mirrors.fetch(origin.source, REPO, origin.commit({"a.txt": b"a"}))
    (tmp_path / "mirrors/acme/train.git/shallow.lock").touch()
    second = origin.commit({"a.txt": b"b"})
    assert (await mirrors.fetch(origin.source, REPO, second)).tree == origin.tree()


async def test_a_mirror_whose_making_was_interrupted_is_finished(origin, mirrors, tmp_path):
    half = tmp_path / "mirrors/acme/train.git"
    half.mkdir(parents=True)
    (half / "HEAD").write_text("ref: refs/heads/gpurun\n")
    sha = origin.commit({"a.txt": b"a"})
    assert (await mirrors.fetch(origin.source, REPO, sha)).tree == origin.tree()


async def test_another_process_at_the_same_mirror_means_come_back_soon(origin, mirrors, tmp_path):
    sha = origin.commit({"a.txt": b"a"})
    (tmp_path / "mirrors/acme").mkdir(parents=True)
    holder = subprocess.Popen(
        ["flock", str(tmp_path / "mirrors/acme/train.lock"), "-c", "echo held; exec cat"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(SourceUnavailable, match="another process") as caught:
            await mirrors.fetch(origin.source, REPO, sha)
        assert caught.value.retry_after_s == 2.0
        holder.stdin.close()
    assert (await mirrors.fetch(origin.source, REPO, sha)).tree == origin.tree()


# --- the archive


HOSTILE = (
    "-rf",
    "--output=x",
    "new\nline",
    "tab\there",
    "ä/ü trailing ",
    "quo\"te'$(x)`y`",
    "back\\slash",
    ":(exclude)a",
    "*",
    "deep/" * 30 + "er",
    "n" * 200,
)


async def test_b108_hostile_names_arrive_as_they_are(origin, mirrors):
    sha = origin.commit({name: name.encode() for name in HOSTILE})
    await mirrors.fetch(origin.source, REPO, sha)
    tar = await tar_of(mirrors, sha)
    assert {name: content(tar, name) for name in HOSTILE} == {name: name.encode() for name in HOSTILE}


async def test_a_name_that_is_not_utf8_arrives_as_it_is(origin, mirrors):
    sha = origin.commit({os.fsdecode(b"\xff\xfe.bin"): b"1"})
    await mirrors.fetch(origin.source, REPO, sha)
    assert os.fsdecode(b"\xff\xfe.bin") in members(await tar_of(mirrors, sha))


ATTRIBUTES = b"""[attr]mine export-ignore export-subst
ignored.txt export-ignore
folder export-ignore
subst.txt export-subst
macro.txt mine
crlf.txt text eol=crlf
ident.txt ident
utf16.txt working-tree-encoding=UTF-16
smudged.txt filter=evil
"""


async def test_attributes_of_the_tree_change_nothing(origin, mirrors):
    files = {
        "ignored.txt": b"shipped\n",
        "folder/inner.txt": b"shipped\n",
        "subst.txt": b"$Format:%H$\n",
        "macro.txt": b"$Format:%H$\n",
        "crlf.txt": b"one\ntwo\n",
        "ident.txt": b"$Id$\n",
        "smudged.txt": b"as stored\n",
        "folder/.gitattributes": b"* export-ignore\n",
    }
    sha = origin.commit({**files, ".gitattributes": ATTRIBUTES})
    await mirrors.fetch(origin.source, REPO, sha)
    tar = await tar_of(mirrors, sha)
    assert {name: content(tar, name) for name in files} == files


async def test_the_archive_is_the_tree_bit_for_bit(origin, mirrors):
    origin.commit(
        {"run.sh": b"#!/bin/sh\n", "data.bin": bytes(range(256)) * 3000, "empty": b"", ".gitattributes": ATTRIBUTES}
    )
    origin.git("update-index", "--chmod=+x", "run.sh")
    (origin.path / "link").symlink_to("../outside/of the tree")
    (origin.path / "long-link").symlink_to("x" * 150)
    origin.git("add", "link", "long-link")
    origin.git("commit", "-q", "-m", "modes")
    sha = CommitSha(origin.git("rev-parse", "HEAD"))
    tree = (await mirrors.fetch(origin.source, REPO, sha)).tree
    assert tree_id(await tar_of(mirrors, sha)) == tree


async def test_modes_links_submodules_and_folders(origin, mirrors):
    origin.commit({"run.sh": b"#!/bin/sh\n", "plain.txt": b""})
    origin.git("update-index", "--chmod=+x", "run.sh")
    (origin.path / "link").symlink_to("plain.txt")
    origin.git("add", "link")
    origin.git("update-index", "--add", "--cacheinfo", f"160000,{'2' * 40},vendored/sub")
    origin.git("commit", "-q", "-m", "modes")
    sha = CommitSha(origin.git("rev-parse", "HEAD"))
    await mirrors.fetch(origin.source, REPO, sha, skip=[Extra.SUBMODULES])
    found = members(await tar_of(mirrors, sha))
    assert (found["run.sh"].mode, found["plain.txt"].mode) == (0o755, 0o644)
    assert found["link"].issym()
    assert found["link"].linkname == "plain.txt"
    assert found["vendored/sub"].isdir()


async def test_an_empty_tree_is_an_archive_too(origin, mirrors):
    sha = origin.commit({})
    await mirrors.fetch(origin.source, REPO, sha)
    tar = await tar_of(mirrors, sha)
    named = subprocess.run(["git", "get-tar-commit-id"], input=tar, capture_output=True, check=True)
    assert named.stdout.decode().strip() == sha


async def test_the_global_header_holds_the_commit_and_equal_calls_give_equal_bytes(origin, mirrors):
    sha = origin.commit({"a.txt": b"a"})
    await mirrors.fetch(origin.source, REPO, sha)
    tar = await tar_of(mirrors, sha)
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        assert opened.pax_headers["comment"] == sha
    assert tar == await tar_of(mirrors, sha)


async def test_an_abandoned_archive_leaves_no_process(origin, mirrors):
    sha = origin.commit({"big.bin": os.urandom(8 << 20)})
    await mirrors.fetch(origin.source, REPO, sha)
    stream = mirrors.archive(REPO, sha)
    assert await anext(stream)
    assert children()
    await stream.aclose()
    assert children() == []


async def test_archive_of_what_was_never_fetched_fails(origin, mirrors):
    await mirrors.fetch(origin.source, REPO, origin.commit({"a.txt": b"a"}))
    with pytest.raises(SourceUnavailable, match="git archive of acme/train"):
        await tar_of(mirrors, NOWHERE)


async def test_an_archive_that_breaks_off_raises(origin, mirrors, tmp_path):
    sha = origin.commit({"a.bin": os.urandom(1 << 20), "b.txt": b"b"})
    await mirrors.fetch(origin.source, REPO, sha)
    bare = tmp_path / "mirrors/acme/train.git"
    blob = origin.git("rev-parse", "HEAD:b.txt")
    [pack] = bare.glob("objects/pack/*.pack")
    loose = pack.rename(tmp_path / "moved.pack").read_bytes()
    subprocess.run(["git", "-C", str(bare), "unpack-objects", "-q"], input=loose, check=True)
    (bare / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(SourceUnavailable, match="failed"):
        await tar_of(mirrors, sha)


# --- over the network


class Door(http.server.BaseHTTPRequestHandler):
    """A git host that lets nobody in, or redirects; remembers the headers it saw."""

    seen: list[dict[str, str]]
    answer: int
    location: str

    def do_GET(self) -> None:
        self.seen.append(dict(self.headers))
        self.send_response(self.answer)
        if self.location:
            self.send_header("Location", self.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def door(answer: int, location: str = ""):
    handler = type("OneDoor", (Door,), {"seen": [], "answer": answer, "location": location})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/acme/train.git", handler.seen
        finally:
            server.shutdown()
            thread.join()


TOKEN = "ghs_0123456789abcdefSECRET"
BASIC = "basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()


@pytest.mark.parametrize(("authorization", "secret"), [(BASIC, BASIC.split()[1]), (f"Bearer {TOKEN}", TOKEN)])
@pytest.mark.parametrize("status", [401, 403, 404, 500])
async def test_a_refusal_is_unavailable_and_keeps_the_token_secret(mirrors, tmp_path, status, authorization, secret):
    with door(status) as (url, seen):
        with pytest.raises(SourceUnavailable) as caught:
            await mirrors.fetch(GitSource(url=url, authorization=SecretStr(authorization)), REPO, NOWHERE)
        assert seen[0]["Authorization"] == authorization
    assert secret not in str(caught.value)
    assert TOKEN not in str(caught.value)
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert TOKEN.encode() not in file.read_bytes()
        assert secret.encode() not in file.read_bytes()


async def test_the_token_does_not_follow_a_redirect(mirrors):
    with door(200) as (elsewhere, seen), door(302, elsewhere + "/info/refs") as (url, _):
        with pytest.raises(SourceUnavailable):
            await mirrors.fetch(GitSource(url=url, authorization=SecretStr(BASIC)), REPO, NOWHERE)
        assert seen == []


async def test_a_password_inside_the_url_is_not_repeated(mirrors):
    with door(403) as (url, _):
        hostile = url.replace("http://", "http://user:hunter2hunter2@")
        with pytest.raises(SourceUnavailable) as caught:
            await mirrors.fetch(GitSource(url=hostile), REPO, NOWHERE)
    assert "hunter2" not in str(caught.value)


async def test_a_commit_comes_over_the_git_protocol(origin, mirrors, tmp_path):
    sha = origin.commit({"a.txt": b"a"})
    port = free_port()
    argv = ["git", "daemon", "--export-all", "--listen=127.0.0.1", f"--port={port}", f"--base-path={tmp_path}"]
    with subprocess.Popen([*argv, "--verbose"], stderr=subprocess.PIPE, start_new_session=True) as daemon:
        try:
            while b"Ready to rumble" not in daemon.stderr.readline():
                pass
            source = GitSource(url=f"git://127.0.0.1:{port}/origin/.git")
            assert (await mirrors.fetch(source, REPO, sha)).tree == origin.tree()
            with pytest.raises(PinNotFound, match="has no commit"):
                await mirrors.fetch(source, REPO, NOWHERE)
        finally:
            os.killpg(daemon.pid, 15)


async def test_a_silent_remote_ends_at_the_timeout_and_leaves_no_process(tmp_path):
    mirrors = GitMirrors(tmp_path / "mirrors", fetch_timeout_s=0.5)

    async def silent(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(SourceUnavailable, match=r"longer than 0\.5 s"):
            await mirrors.fetch(GitSource(url=f"http://127.0.0.1:{port}/x.git"), REPO, NOWHERE)
    assert children() == []


async def test_nothing_of_the_user_configures_git(mirrors, origin, tmp_path, monkeypatch):
    sha = origin.commit({"a.txt": b"a"})
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text('[url "/no/such/folder"]\n\tinsteadOf = /\n')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", "/no/such/folder")
    assert await mirrors.fetch(origin.source, REPO, sha)


async def test_a_process_is_ended_with_its_children(tmp_path):
    alias = "alias.nap=!sleep 60 & sleep 60"
    with pytest.raises(TimeoutError):
        await run_git("-c", alias, "nap", environment=None, timeout_s=0.3)
    assert children() == []


# --- what the tests know about processes and trees


def children() -> list[str]:
    """Command lines of living descendants of this process (zombies and threads are none)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if state != "Z" and parent == str(os.getpid()):
                    found.append(line)
    return found


def tree_id(tar: bytes) -> str:
    """The git tree id of what is in the tar, computed by hand."""
    root: dict[bytes, object] = {}
    with tarfile.open(fileobj=io.BytesIO(tar), encoding="utf-8", errors="surrogateescape") as opened:
        for member in opened:
            if member.isdir():
                continue
            *folders, name = (os.fsencode(part) for part in member.name.split("/"))
            at = root
            for folder in folders:
                at = at.setdefault(folder, {})  # type: ignore[assignment]
            if member.issym():
                at[name] = (b"120000", os.fsencode(member.linkname))
            else:
                at[name] = (b"100755" if member.mode & 0o100 else b"100644", opened.extractfile(member).read())
    return hash_tree(root).hex()


def hash_tree(tree: dict[bytes, object]) -> bytes:
    lines = []
    for name, entry in tree.items():
        if isinstance(entry, dict):
            lines.append((name + b"/", b"40000 " + name + b"\0" + hash_tree(entry)))
        else:
            mode, data = entry
            lines.append((name, mode + b" " + name + b"\0" + hash_object(b"blob", data)))
    return hash_object(b"tree", b"".join(line for _, line in sorted(lines)))


def hash_object(kind: bytes, data: bytes) -> bytes:
    return hashlib.sha1(b"%s %d\0" % (kind, len(data)) + data).digest()


# what a commit points to and does not hold

POINTER = pointer_of("4d" * 32, 12345)
LFS = b"*.bin filter=lfs diff=lfs merge=lfs -text\n"


def with_submodules(origin: Origin, *paths: str) -> CommitSha:
    """Their repositories are elsewhere and are never asked."""
    modules = "".join(f'[submodule "{path}"]\n\tpath = {path}\n\turl = https://other.test/x\n' for path in paths)
    origin.commit({".gitmodules": modules.encode(), "a.txt": b"a"})
    for path in paths:
        origin.git("update-index", "--add", "--cacheinfo", f"160000,{'2' * 40},{path}")
    origin.git("commit", "-q", "-m", "submodules")
    return CommitSha(origin.git("rev-parse", "HEAD"))


@pytest.mark.parametrize("path", ["data/model.bin", "größe .bin", "a\nb.bin", "x/" * 50 + "y.bin"])
async def test_b108_a_file_of_lfs_is_refused_by_name(origin, mirrors, path):
    sha = origin.commit({".gitattributes": LFS, path: POINTER, "code.py": b"x"})
    with pytest.raises(PinNotFound, match="holds files of git LFS") as caught:
        await mirrors.fetch(origin.source, REPO, sha)
    assert quoted(path) in caught.value.message
    assert caught.value.hint == (
        "Write `checkout: {lfs: fetch}` to get them, or `checkout: {lfs: skip}` if it does not need them."
    )


async def test_b108_a_submodule_is_refused_by_name_and_its_repository_is_not_asked(origin, mirrors):
    sha = with_submodules(origin, "vendor/größe")
    with pytest.raises(PinNotFound, match=r"holds submodules \('vendor/größe'\), and the job does not say"):
        await mirrors.fetch(origin.source, REPO, sha)


async def test_b108_a_submodule_that_would_leave_the_tree_does_nothing(origin, mirrors):
    origin.commit({".gitmodules": b'[submodule "../../.git/hooks"]\n\tpath = x\n\turl = --upload-pack=evil\n'})
    origin.git("update-index", "--add", "--cacheinfo", f"160000,{'2' * 40},x")
    origin.git("commit", "-q", "-m", "evil")
    sha = CommitSha(origin.git("rev-parse", "HEAD"))
    with pytest.raises(PinNotFound):  # git itself refuses the object, or we the submodule
        await mirrors.fetch(origin.source, REPO, sha)


async def test_b108_both_are_told_at_once_and_few_by_name(origin, mirrors):
    origin.commit({".gitattributes": LFS, **{f"{n}.bin": POINTER for n in range(20)}})
    sha = with_submodules(origin, *(f"vendor/{n}" for n in range(9)))
    with pytest.raises(PinNotFound) as caught:
        await mirrors.fetch(origin.source, REPO, sha, skip=())
    assert caught.value.message == (
        f"Commit {sha[:12]} holds submodules ('vendor/0', 'vendor/1', 'vendor/2', 'vendor/3', 'vendor/4', …) "
        "and files of git LFS ('0.bin', '1.bin', '10.bin', '11.bin', '12.bin', …), "
        "and the job does not say what to do with them."
    )
    assert "`checkout: {submodules: skip, lfs: skip}`" in caught.value.hint
    assert "`checkout: {submodules: fetch, lfs: fetch}`" in caught.value.hint


@pytest.mark.parametrize("again", [False, True])
async def test_b108_what_a_job_says_it_does_without_is_no_fault(origin, mirrors, again):
    origin.commit({".gitattributes": LFS, "a.bin": POINTER})
    sha = with_submodules(origin, "vendor/x")
    if again:  # the mirror has it already, and another job asks
        with pytest.raises(PinNotFound):
            await mirrors.fetch(origin.source, REPO, sha)
    with pytest.raises(PinNotFound, match="git LFS"):
        await mirrors.fetch(origin.source, REPO, sha, skip=[Extra.SUBMODULES])
    with pytest.raises(PinNotFound, match="submodules"):
        await mirrors.fetch(origin.source, REPO, sha, skip=[Extra.LFS])
    tree = (await mirrors.fetch(origin.source, REPO, sha, skip=list(Extra))).tree
    assert tree == origin.tree()
    assert content(await tar_of(mirrors, sha), "a.bin") == POINTER


@pytest.mark.parametrize(
    "files",
    [
        {"a.bin": POINTER},
        {".gitattributes": LFS, "a.bin": bytes(range(256)) * 2},
        {".gitattributes": LFS, "a.bin": b"version 1\n" * 20},
        {".gitattributes": LFS, "a.bin": POINTER + b"x" * 2000},
        {".gitattributes": b"*.bin binary\n", "docs/.gitattributes": b"", "a.bin": POINTER},
        {".gitmodules": b"", "filter=lfs": b"filter=lfs"},
        {},
    ],
    ids=["no attribute", "a real file", "another text", "too long", "another attribute", "no submodule", "nothing"],
)
async def test_b108_what_git_itself_would_check_out_like_that_is_no_fault(origin, mirrors, files):
    sha = origin.commit(files)
    assert (await mirrors.fetch(origin.source, REPO, sha)).tree == origin.tree()


async def test_b108_an_attribute_in_a_folder_is_found_and_many_files_are_asked_for_in_parts(
    origin, mirrors, monkeypatch
):
    monkeypatch.setattr(tree, "_AT_ONCE", 10)
    files = {f"many/{n}": b"%d" % n * 60 for n in range(45)}
    sha = origin.commit({"deep/er/.gitattributes": b"\n" + LFS, "zz.bin": POINTER, **files})
    with pytest.raises(PinNotFound, match=r"git LFS \('zz.bin'\)"):
        await mirrors.fetch(origin.source, REPO, sha)


async def test_many_large_files_of_attributes_are_never_in_memory_together(origin, mirrors, monkeypatch):
    asked: list[tuple[int, int]] = []
    run_git = mirrors._git

    async def counted(mirror, *argv, given=b""):
        done = await run_git(mirror, *argv, given=given)
        if argv[0] == "cat-file" and given:
            asked.append((given.count(b"\n"), len(done.stdout)))
        return done

    monkeypatch.setattr(mirrors, "_git", counted)
    monkeypatch.setattr(tree, "_AT_ONCE_BYTES", 20_000)
    files = {f"{n}/.gitattributes": b"%d\n" % n + b"#\n" * 4_500 for n in range(8)}
    again = {f"{n}/again/.gitattributes": files["0/.gitattributes"] for n in range(50)}
    sha = origin.commit({**files, **again, "zz.bin": POINTER})
    await mirrors.fetch(origin.source, REPO, sha)
    assert sum(count for count, _ in asked) == 8  # each content once
    assert all(n_bytes < 21_000 for _, n_bytes in asked)
    monkeypatch.setattr(missing, "_MAX_ALL_ATTRIBUTES", 70_000)
    with pytest.raises(PinNotFound, match=r"git LFS \('zz.bin'\)"):
        await mirrors.fetch(origin.source, REPO, sha)


async def test_a_look_reads_what_says_what_the_repository_needs(origin, mirrors):
    sha = origin.commit(
        {
            "requirements.txt": b"torch\xff\n",
            "src/app.py": b"import torch\n",
            "big.py": b"#" * 100_000,
            "photo.jpg": bytes(range(256)),
            "a\nb.py": b"1",
            "empty.py": b"",
        }
    )
    (origin.path / "link.py").symlink_to("/etc/passwd")
    sha = origin.commit({})
    await mirrors.fetch(origin.source, REPO, sha)
    facts = await mirrors.look(REPO, sha)
    assert facts.paths == ("big.py", "empty.py", "photo.jpg", "requirements.txt", "src/app.py")
    assert facts.texts == {"requirements.txt": "torch\ufffd\n", "src/app.py": "import torch\n"}
    assert not facts.is_cut


async def test_a_look_at_a_tree_without_end_ends(origin, mirrors, monkeypatch):
    monkeypatch.setattr("gpurun.adapters.git.mirrors.MAX_LISTED_BYTES", 2_000)
    monkeypatch.setattr("gpurun.adapters.git.look.MAX_LISTED_BYTES", 2_000)
    sha = origin.commit({**{f"data/{n}.bin": b"%d" % n for n in range(300)}, "zz.py": b"1"})
    await mirrors.fetch(origin.source, REPO, sha)
    facts = await mirrors.look(REPO, sha)
    assert facts.paths[0] == "zz.py"  # the top of the tree is always there
    assert facts.is_cut
    assert 10 < len(facts.paths) < 60


async def test_a_look_at_what_is_not_there(origin, mirrors):
    sha = origin.commit({"a": b"1"})
    with pytest.raises(SourceUnavailable):
        await mirrors.look(REPO, sha)  # nobody fetched
    await mirrors.fetch(origin.source, REPO, sha)
    with pytest.raises(SourceUnavailable):
        await mirrors.look(REPO, NOWHERE)


async def test_an_empty_tree_has_nothing_to_look_at(origin, mirrors):
    sha = origin.commit({})
    await mirrors.fetch(origin.source, REPO, sha)
    facts = await mirrors.look(REPO, sha)
    assert (facts.paths, dict(facts.texts)) == ((), {})
