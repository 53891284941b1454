"""Submodules and LFS files from a GitHub that serves real git: fetched, refused, and in their places in the archive."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpurun.adapters.git import GitMirrors
from gpurun.adapters.git.archive import Members, file_head
from gpurun.adapters.github import GitHubForge
from gpurun.domain.errors import PinNotFound, SourceUnavailable
from gpurun.domain.forge import Extra, GitSource
from gpurun.domain.ids import CommitSha
from gpurun.domain.run import Pins
from gpurun.domain.source import Gitlink, ModuleUrl, Submodule
from gpurun.plan.resolve import FetchLfs, FetchSubmodule, _missing_source, with_commit, with_lfs, with_submodule
from gpurun_agent.tar import Unpacking
from tests.fakes.clock import FakeClock
from tests.fakes.github import FakeGitHub, Repo, serving
from tests.fakes.github import Submodule as Link
from tests.fakes.github.lfs_http import keep, pointer

LFS = "*.bin filter=lfs diff=lfs merge=lfs -text\n"
BOTH = frozenset(Extra)


class Place:
    """A GitHub, a bot's mirrors, and a run's way to its source."""

    def __init__(self, github: FakeGitHub, folder: Path) -> None:
        self.github = github
        self.folder = folder
        self.mirrors = GitMirrors(folder / "mirrors")
        self.forge = GitHubForge(
            app_id=github.app.id,
            private_key=github.app.private_key,
            api_url=github.api_url,
            git_url=github.git_url,
            clock=github.clock,
            submodule_hosts=frozenset({"git.example"}),
        )

    def commit(self, repo: Repo, files, parent: bool = True) -> CommitSha:
        before = repo.git.resolve("refs/heads/main") if parent else None
        sha = repo.git.commit("main", files, message="x", author="alice", at=self.github.clock.now(), parent=before)
        return CommitSha(sha)

    async def pins(self, repo: Repo, sha: CommitSha, *, get=BOTH, skip=(), reader="alice") -> Pins:
        """As planning finds them, step by step."""
        source = await self.forge.git_source(repo.ref)
        pins = with_commit(Pins(), await self.mirrors.fetch(source, repo.ref.name, sha, skip=skip, get=get))
        while left := list(_missing_source(pins)):
            match left[0]:
                case FetchSubmodule(link):
                    source = await self.forge.submodule_source(repo.ref, link, reader=reader)
                    url = ModuleUrl(source.url)
                    found = await self.mirrors.fetch(source, url, link.commit, skip=skip, get=get, at=link.path)
                    pins = with_submodule(pins, link, source.url, found)
                case FetchLfs(None):
                    source = await self.forge.git_source(repo.ref)
                    await self.mirrors.fetch_lfs(source, repo.ref.name, sha)
                    pins = with_lfs(pins, "")
                case FetchLfs(Gitlink() as link):
                    source = await self.forge.submodule_source(repo.ref, link, reader=reader)
                    await self.mirrors.fetch_lfs(source, ModuleUrl(link.source), link.commit)
                    pins = with_lfs(pins, link.path)
        return pins

    async def unpacked(self, repo: Repo, sha: CommitSha, pins: Pins) -> dict[str, bytes]:
        """What the agent makes of it."""
        folder = self.folder / "work" / os.urandom(4).hex()
        folder.mkdir(parents=True)
        modules = [Submodule(path=one.path, url=one.source, commit=one.commit) for one in pins.links]
        stream = self.mirrors.archive(repo.ref.name, sha, submodules=modules, lfs=pins.lfs)
        tar = b"".join([piece async for piece in stream])
        assert len(tar) <= pins.source_bytes + 12 * 1024  # its ends
        unpacking = Unpacking(io.BytesIO(tar), str(folder))
        for _ in unpacking:
            pass
        assert unpacking.commit == sha
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
        }


@pytest.fixture
async def place(tmp_path) -> AsyncIterator[Place]:
    github = FakeGitHub(tmp_path / "github", clock=FakeClock())
    github.user("alice")
    async with serving(github):
        place = Place(github, tmp_path)
        yield place
        await place.forge.close()


def modules(*links: tuple[str, str]) -> str:
    return "".join(f'[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n' for path, url in links)


async def test_b108_submodules_and_theirs_lie_in_their_places(place):
    deep, lib, app = (place.github.create_repo(f"acme/{name}") for name in ("deep", "lib", "app"))
    deep_sha = place.commit(deep, {"deep.txt": "deep"}, parent=False)
    place.commit(deep, {"deep.txt": "newer"})
    lib_files = {".gitmodules": modules(("in/ner", "../deep")), "in/ner": Link(deep_sha), "run.sh": "#!/bin/sh\n"}
    lib_sha = place.commit(lib, lib_files, parent=False)
    host = place.github.git_url.removeprefix("http://").partition(":")[0]
    links = modules(("vendor/größe .x", f"git@{host}:acme/lib.git"), ("twice", f"{place.github.git_url}/acme/lib"))
    files = {".gitmodules": links, "vendor/größe .x": Link(lib_sha), "twice": Link(lib_sha), "a.txt": "a"}
    sha = place.commit(app, files, parent=False)
    pins = await place.pins(app, sha)
    assert [(one.path, one.commit) for one in sorted(pins.links, key=lambda one: one.path)] == [
        ("twice", lib_sha),
        ("twice/in/ner", deep_sha),
        ("vendor/größe .x", lib_sha),
        ("vendor/größe .x/in/ner", deep_sha),
    ]
    found = await place.unpacked(app, sha, pins)
    for top in ("twice", "vendor/größe .x"):
        assert found[f"{top}/in/ner/deep.txt"] == b"deep"
        assert found[f"{top}/run.sh"] == b"#!/bin/sh\n"
    assert found["a.txt"] == b"a"
    assert not pins.lfs


async def test_b108_long_names_below_the_folder_of_a_submodule_are_counted(place):
    lib, app = place.github.create_repo("acme/lib"), place.github.create_repo("acme/app")
    names = [f"{'n' * 60}{number}" for number in range(40)]
    lib_files = {
        ".gitattributes": LFS,
        **dict.fromkeys(names, "x"),
        **{f"{name}.bin": keep(lib, b"") for name in names},
    }
    link = Link(place.commit(lib, lib_files, parent=False))
    files = {".gitmodules": modules(("v" * 160, f"{place.github.git_url}/acme/lib")), "v" * 160: link}
    sha = place.commit(app, files, parent=False)
    pins = await place.pins(app, sha)
    assert len(await place.unpacked(app, sha, pins)) == 82  # and what its archive has is no more than was counted


async def test_a_submodule_is_fetched_once_and_asked_for_each_time(place):
    lib, app = (place.github.create_repo(f"acme/{name}", private=True) for name in ("lib", "app"))
    lib_sha = place.commit(lib, {"x": "1"}, parent=False)
    sha = place.commit(app, {".gitmodules": modules(("lib", "../lib")), "lib": Link(lib_sha)}, parent=False)
    lib.grant("alice", "read")
    assert (await place.pins(app, sha)).links[0].source == f"{place.github.git_url}/acme/lib.git"
    lib.grant("alice", "none")  # its objects are in the bot's mirror, and are not hers any more
    with pytest.raises(PinNotFound, match=r"private repository acme/lib, which @alice may not read"):
        await place.pins(app, sha)
    with pytest.raises(PinNotFound, match="@nobody-of-that-name may not read"):
        await place.pins(app, sha, reader="nobody-of-that-name")
    with pytest.raises(PinNotFound, match="of a fork, or of an author who may not push, gets what everybody may read"):
        await place.pins(app, sha, reader="")
    lib.private = False
    assert (await place.pins(app, sha, reader="")).links[0].source == f"{place.github.git_url}/acme/lib.git"


async def test_a_private_submodule_where_the_app_is_not_or_of_somebody_else_is_refused(place):
    app = place.github.create_repo("acme/app")
    for name in ("acme/closed", "other/closed"):
        closed = place.github.create_repo(name, private=True, installed=False)
        closed.grant("alice", "admin")
        link = Link(place.commit(closed, {"x": "1"}, parent=False))
        url = f"{place.github.git_url}/{name}"
        sha = place.commit(app, {".gitmodules": modules(("lib", url)), "lib": link}, parent=False)
        with pytest.raises(PinNotFound, match=f"{name}.git is not there, or not open to this App"):
            await place.pins(app, sha)


CLOSED = r"submodule http\S*/acme/secret.git is not there, or not open to this App"


def secret_in(place: Place, *apps: Repo, private: bool = True) -> tuple[Repo, list[CommitSha]]:
    """`acme/secret` with an LFS file, and a commit of each that has it as a submodule."""
    secret = place.github.create_repo("acme/secret", private=private)
    link = Link(place.commit(secret, {".gitattributes": LFS, "w.bin": keep(secret, b"weights")}, parent=False))
    files = {".gitmodules": modules(("lib", f"{place.github.git_url}/acme/secret")), "lib": link}
    return secret, [place.commit(app, files, parent=False) for app in apps]


async def test_what_one_organisation_fetched_is_not_given_to_another_one(place):
    app, theirs = place.github.create_repo("acme/app"), place.github.create_repo("other/app")
    secret, (sha, their_sha) = secret_in(place, app, theirs)
    secret.grant("alice", "read")
    assert (await place.unpacked(app, sha, await place.pins(app, sha)))["lib/w.bin"] == b"weights"
    with pytest.raises(PinNotFound, match=CLOSED):
        await place.pins(theirs, their_sha)
    with pytest.raises(PinNotFound, match=CLOSED):  # who has the right starts it: the repository has none
        await place.pins(theirs, their_sha, get=[Extra.SUBMODULES], skip=[Extra.LFS])
    (link,) = (await place.pins(app, sha)).links
    source = await place.forge.submodule_source(theirs.ref, link, reader="alice")
    with pytest.raises(PinNotFound, match=r"none such as 'w.bin' \(it answered 404\)"):
        await place.mirrors.fetch_lfs(source, ModuleUrl(link.source), link.commit)


async def test_a_submodule_where_the_app_was_removed_is_refused_although_it_was_fetched(place):
    app = place.github.create_repo("acme/app")
    secret, (sha,) = secret_in(place, app)
    secret.grant("alice", "read")
    await place.pins(app, sha)
    place.github.installations[app.installation_id].repos.discard("acme/secret")
    with pytest.raises(PinNotFound, match=CLOSED):
        await place.pins(app, sha)


async def test_a_submodule_that_became_private_is_refused_although_it_was_fetched(place):
    theirs = place.github.create_repo("other/app")
    secret, (sha,) = secret_in(place, theirs, private=False)
    for _ in range(2):  # also from the mirror
        assert (await place.unpacked(theirs, sha, await place.pins(theirs, sha)))["lib/w.bin"] == b"weights"
    secret.private = True
    with pytest.raises(PinNotFound, match=CLOSED):
        await place.pins(theirs, sha)


async def test_a_fetched_submodule_without_a_proof_waits_for_a_host_that_does_not_answer(place):
    theirs = place.github.create_repo("other/app")
    _, (sha,) = secret_in(place, theirs, private=False)
    (link,) = (await place.pins(theirs, sha)).links
    url = ModuleUrl(link.source)
    gone = GitSource(url="http://127.0.0.1:1/acme/secret.git")
    with pytest.raises(SourceUnavailable, match=r"acme/secret.git cannot be fetched"):
        await place.mirrors.fetch(gone, url, link.commit, get=BOTH)
    with pytest.raises(SourceUnavailable, match="does not answer for git LFS"):
        await place.mirrors.fetch_lfs(gone, url, link.commit)
    assert (await place.mirrors.fetch(replace(gone, is_proved=True), url, link.commit, get=BOTH)).n_lfs == 1
    await place.mirrors.fetch_lfs(replace(gone, is_proved=True), url, link.commit)


async def test_a_public_submodule_of_somebody_else_is_fetched(place):
    app, lib = place.github.create_repo("acme/app"), place.github.create_repo("other/lib", installed=False)
    lib_sha = place.commit(lib, {"x": "1"}, parent=False)
    sha = place.commit(app, {".gitmodules": modules(("lib", "../../other/lib")), "lib": Link(lib_sha)}, parent=False)
    assert (await place.unpacked(app, sha, await place.pins(app, sha)))["lib/x"] == b"1"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://evil.example/x/y", "on the host 'evil.example'"),
        ("git@evil.example:x/y", "on the host 'evil.example'"),
        ("file:///etc", "is not fetched"),
        ("/etc/passwd", "is not fetched"),
        ("ext::sh -c touch% x", "no address of a repository"),
        ("--upload-pack=touch x", "is not fetched"),
        ("../../../../../x", "leads out of its host"),
        ("https://git.example/a/../b", "no address of a repository"),
        ("https://git.example/-x", "no address of a repository"),
        ("https://git.example/a?b=c", "is not fetched"),
        ("https://[::1", "no address"),
        ("HOST/only-one-name", "no repository"),
    ],
)
async def test_b108_a_submodule_comes_from_known_hosts_only(place, url, told):
    app = place.github.create_repo("acme/app")
    link = Gitlink(path="x", name="x", url=url.replace("HOST", place.github.git_url), commit=CommitSha("1" * 40))
    with pytest.raises(PinNotFound, match=told):
        await place.forge.submodule_source(app.ref, link, reader="alice")


@pytest.mark.parametrize(
    "url",
    [
        "https://git.example/a/b.git",
        "http://user:secret-word@git.example/a/b.git",
        "ssh://git@git.example:2222/a/b.git",
        "git@git.example:a/b.git",
        "git://git.example:9418/a/b.git",
    ],
)
async def test_every_protocol_of_a_known_host_becomes_https_without_a_user(place, url):
    app = place.github.create_repo("acme/app")
    link = Gitlink(path="x", name="x", url=url, commit=CommitSha("1" * 40))
    source = await place.forge.submodule_source(app.ref, link, reader="alice")
    assert (source.url, source.authorization) == ("https://git.example/a/b.git", None)


async def test_b108_a_submodule_that_gitmodules_does_not_name_is_refused(place):
    app = place.github.create_repo("acme/app")
    sha = place.commit(app, {"lib": Link("2" * 40)}, parent=False)
    with pytest.raises(PinNotFound, match=r"'lib', whose address is not in `.gitmodules`"):
        await place.pins(app, sha)
    sha = place.commit(app, {"lib": Link("2" * 40), ".gitmodules": "[submodule"}, parent=False)
    with pytest.raises(PinNotFound, match="gitmodules"):
        await place.pins(app, sha)


async def test_a_submodule_of_itself_ends(place):
    app = place.github.create_repo("acme/app")
    sha = place.commit(app, {"x": "1"}, parent=False)
    for _ in range(7):
        sha = place.commit(app, {".gitmodules": modules(("me", "../app")), "me": Link(sha)})
    with pytest.raises(PinNotFound, match="deeper than the 5 levels"):
        await place.pins(app, sha)


async def test_b108_lfs_files_have_their_content(place):
    lib, app = place.github.create_repo("acme/lib", private=True), place.github.create_repo("acme/app", private=True)
    lib.grant("alice", "read")
    big, small = os.urandom(3_000_000), b"small"
    lib_files = {".gitattributes": LFS, "weights.bin": keep(lib, big)}
    lib_sha = place.commit(lib, lib_files, parent=False)
    names = ("data/größe .bin", "n" * 120 + ".bin", "same.bin")
    files = {".gitattributes": LFS, "not-lfs.txt": "x", **{name: keep(app, small) for name in names}}
    files |= {"empty.bin": keep(app, b""), ".gitmodules": modules(("lib", "../lib")), "lib": Link(lib_sha)}
    sha = place.commit(app, files, parent=False)
    pins = await place.pins(app, sha)
    assert pins.lfs
    found = await place.unpacked(app, sha, pins)
    assert {found[name] for name in names} == {small}
    assert found["empty.bin"] == b""
    assert found["lib/weights.bin"] == big
    assert found["not-lfs.txt"] == b"x"
    with pytest.raises(PinNotFound, match=r"Commit [0-9a-f]{12} of http\S*/acme/lib.git holds files of git LFS"):
        await place.pins(app, place.commit(app, dict.fromkeys(files) | {
            ".gitmodules": files[".gitmodules"], "lib": files["lib"]}), get=[Extra.SUBMODULES])  # fmt: skip


async def test_b108_wrong_or_missing_content_of_an_lfs_file_is_never_given(place):
    app = place.github.create_repo("acme/app")
    wrong, missing = b"good content", b"never uploaded"
    kept = keep(app, wrong)
    app.lfs[hashlib.sha256(wrong).hexdigest()] = b"evil content"  # of the same length
    sha = place.commit(app, {".gitattributes": LFS, "a.bin": kept}, parent=False)
    with pytest.raises(PinNotFound, match=r"content of 'a.bin' that 127.0.0.1 gave has the SHA-256"):
        await place.pins(app, sha)
    app.lfs[hashlib.sha256(wrong).hexdigest()] = wrong
    assert (await place.unpacked(app, sha, await place.pins(app, sha)))["a.bin"] == wrong
    sha = place.commit(app, {".gitattributes": LFS, "b.bin": pointer(missing)}, parent=False)
    with pytest.raises(PinNotFound, match=r"does not have the content of 'b.bin' of git LFS \(404: 'Object does not"):
        await place.pins(app, sha)
    app.lfs[hashlib.sha256(missing).hexdigest()] = missing + b"more"
    with pytest.raises(PinNotFound, match=r"More bytes came for 'b.bin' than the 14"):
        await place.pins(app, sha)


async def test_a_download_goes_on_where_it_ended_and_what_is_spoilt_comes_anew(place, tmp_path):
    app = place.github.create_repo("acme/app")
    content = os.urandom(900_000)
    oid = hashlib.sha256(content).hexdigest()
    sha = place.commit(app, {".gitattributes": LFS, "a.bin": keep(app, content)}, parent=False)
    app.lfs[oid] = content[:400_000]
    with pytest.raises(SourceUnavailable, match=r"Only 400,000 of 900,000 bytes of 'a.bin' came; they are kept"):
        await place.pins(app, sha)
    app.lfs[oid] = bytes(400_000) + content[400_000:]  # who asks for the beginning again gets another one
    pins = await place.pins(app, sha)
    assert (await place.unpacked(app, sha, pins))["a.bin"] == content
    (kept,) = tmp_path.glob(f"mirrors/acme/app.git/gpurun-lfs/*/{oid}")
    kept.write_bytes(bytes(len(content)))
    with pytest.raises(SourceUnavailable, match="was spoilt in the cache"):
        await place.unpacked(app, sha, pins)
    app.lfs[oid] = content
    assert (await place.unpacked(app, sha, await place.pins(app, sha)))["a.bin"] == content


async def test_an_address_of_lfs_is_https_and_is_never_told(place):
    app = place.github.create_repo("acme/app")
    sha = place.commit(app, {".gitattributes": LFS, "a.bin": keep(app, b"x")}, parent=False)
    for host in ("http://127.0.0.1:1", "file://", "ftp://x", "//x"):
        app.lfs_host = host
        with pytest.raises(PinNotFound, match=r"names no https address for the content of 'a.bin'"):
            await place.pins(app, sha)
    app.lfs_host = "https://127.0.0.1:1"
    with pytest.raises(SourceUnavailable) as caught:
        await place.pins(app, sha)
    assert "sig=" not in repr(caught.value)
    assert caught.value.__cause__ is None


async def test_another_process_at_the_same_content_means_come_back_soon(place, tmp_path):
    import fcntl

    app = place.github.create_repo("acme/app")
    sha = place.commit(app, {".gitattributes": LFS, "a.bin": keep(app, b"x")}, parent=False)
    oid = hashlib.sha256(b"x").hexdigest()
    await place.pins(app, sha, get=[], skip=BOTH)
    part = tmp_path / f"mirrors/acme/app.git/gpurun-lfs/{oid[:2]}/{oid}.part"
    part.parent.mkdir(parents=True)
    with part.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SourceUnavailable, match="Another process") as caught:
            await place.pins(app, sha)
    assert caught.value.retry_after_s == 2.0
    await place.pins(app, sha)


async def test_a_disk_that_keeps_no_content_means_try_again(place, tmp_path):
    app = place.github.create_repo("acme/app")
    sha = place.commit(app, {".gitattributes": LFS, "a.bin": keep(app, b"x")}, parent=False)
    await place.pins(app, sha, get=[], skip=BOTH)
    blocked = tmp_path / "mirrors/acme/app.git/gpurun-lfs"
    blocked.write_text("no folder")
    with pytest.raises(SourceUnavailable, match=r"content of 'a.bin' cannot be kept: (File exists|Not a directory)"):
        await place.pins(app, sha)
    blocked.unlink()
    assert (await place.unpacked(app, sha, await place.pins(app, sha)))["a.bin"] == b"x"


async def test_a_pointer_that_cannot_be_read_is_refused(place):
    app = place.github.create_repo("acme/app")
    broken = pointer(b"x").replace(b"sha256:", b"sha512:")
    sha = place.commit(app, {".gitattributes": LFS, "a.bin": broken}, parent=False)
    with pytest.raises(PinNotFound, match=r"pointer 'a.bin' of git LFS cannot be read"):
        await place.pins(app, sha)


def tar_of(files: dict[str, bytes]) -> bytes:
    parts = [
        file_head(name, len(data), is_program=False) + data + bytes(-len(data) % 512) for name, data in files.items()
    ]
    return b"".join(parts)


@pytest.mark.parametrize("step", [1, 7, 511, 512, 513, 100_000])
def test_members_are_cut_out_whatever_the_pieces(step):
    whole = tar_of({"a": b"1" * 700, "b/ü": b"", "c" * 150: b"3" * 512})
    tar = whole + bytes(10_240)
    cut = Members(inner=False)
    kept = b"".join(cut.feed(tar[at : at + step]) for at in range(0, len(tar), step))
    assert kept == whole
    assert cut.over
    half = Members(inner=False)
    half.feed(whole)
    assert not half.over


async def test_the_merge_of_a_pull_request_is_a_merge_of_its_head(place):
    app = place.github.create_repo("acme/app", files={"a": "1", "b": "1"})
    app.grant("alice", "write")
    pull = place.github.user("alice").open_pull_request(app, branch="x", files={"a": "2"})
    base = place.commit(app, {"b": "2"})
    found = await place.forge.pull_request(app.ref, pull.number)
    assert found.mergeable
    source = await place.forge.git_source(app.ref)
    fetched = await place.mirrors.fetch(source, app.ref.name, found.merge_sha, merge_of=found.head_sha)
    assert fetched.base == base
    assert await place.unpacked(app, found.merge_sha, Pins(source_bytes=10_000)) == {"a": b"2", "b": b"2"}
    with pytest.raises(PinNotFound, match="does not merge its head"):
        await place.mirrors.fetch(source, app.ref.name, found.merge_sha, merge_of=CommitSha("1" * 40))
    with pytest.raises(PinNotFound, match="does not merge its head"):
        await place.mirrors.fetch(source, app.ref.name, found.head_sha, merge_of=found.head_sha)
    pull.merges = False
    assert (await place.forge.pull_request(app.ref, pull.number)).mergeable is None
    pull.merges = True
    place.commit(app, {"a": "3"})
    assert (await place.forge.pull_request(app.ref, pull.number)).mergeable is False
