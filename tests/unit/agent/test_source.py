"""The source lands whole, is the commit that was asked for, and cannot write elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun_agent.tar import BadTar, Unpacking
from tests.unit.agent.fake_bot import make_tar


def unpack(tar: bytes, folder) -> Unpacking:
    unpacking = Unpacking(io.BytesIO(tar), str(folder))
    for _ in unpacking:
        pass
    return unpacking


def test_an_archive_by_git_comes_out_as_git_has_it(tmp_path):
    repo = tmp_path / "repo"
    repo.mkdir()
    deep = "folder/" + "long-name-" * 12 + "/" + "x" * 150
    files = {"a.txt": b"hello\n", "empty": b"", "tool.sh": b"#!/bin/sh\n", deep: b"d" * 100_000, "umläut 文.txt": b"u"}
    for name, content in files.items():
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (repo / "tool.sh").chmod(0o755)
    (repo / "folder" / "link").symlink_to("../a.txt")

    def git(*args: str) -> bytes:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"]
        return subprocess.run(["git", "-C", repo, *identity, *args], check=True, capture_output=True).stdout

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "m")
    commit = git("rev-parse", "HEAD").decode().strip()
    work = tmp_path / "work"
    work.mkdir()
    unpacking = unpack(git("archive", "--format=tar", commit), work)
    assert unpacking.commit == commit
    assert {name: (work / name).read_bytes() for name in files} == files
    assert (work / "tool.sh").stat().st_mode & 0o777 == 0o755
    assert (work / "a.txt").stat().st_mode & 0o111 == 0
    assert (work / "folder" / "link").readlink().as_posix() == "../a.txt"


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", b"x")],
        [("a/../../evil", b"x")],
        [("/tmp/gpurun-evil", b"x")],
        [("a/../b", b"x")],
        [("inside", ("link", "folder")), ("inside/evil", b"x")],
        [("file", b"x"), ("file/evil", b"x")],
        [("hard", ("hard", "/etc/passwd"))],
        [("folder/x", b"x"), ("folder", b"x")],
        [("inside", ("link", "../..")), ("inside/evil", b"x")],
        [("inside", ("link", "/tmp")), ("inside", b"x"), ("inside/evil", b"x")],
        [(".git/hooks/post-checkout", b"x")],
        [("sub/.GIT/config", b"x")],
        [("git~1", b"x")],
        [(".git. ", ("link", "x"))],
        [(".git::$INDEX_ALLOCATION/config", b"x")],
        [("nowhere", ("link", ""))],
    ],
)
def test_an_attack_is_refused_and_writes_nothing_outside(tmp_path, members):
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(BadTar):
        unpack(make_tar(members), work)
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


@pytest.mark.parametrize("target", ["b", "../../b", ".", "..", "/etc/passwd", "x/../../b", "/data"])
def test_links_stay_as_they_are_wherever_they_point(tmp_path, target):
    unpack(make_tar([("d/e/a", ("link", target)), ("after", b"x")]), tmp_path)
    assert (tmp_path / "d/e/a").readlink().as_posix() == target
    assert (tmp_path / "after").exists()


PARTS = st.sampled_from(["a", "b", "B", "..", ".", "", ".git", ".Git", "git~1", "out", "x y"])
NAMES = st.builds("/".join, st.lists(PARTS, min_size=1, max_size=4))
CONTENTS = st.one_of(
    st.binary(max_size=3),
    st.tuples(st.just("link"), st.sampled_from(["..", "../out", "a", "b/..", "/", "OUT", "."])),
    st.tuples(st.just("hard"), st.just("../out/kept")),
)


@given(members=st.lists(st.tuples(NAMES, CONTENTS), max_size=6))
def test_whatever_an_archive_holds_nothing_is_written_outside_or_through_a_link(members, tmp_path_factory):
    top = tmp_path_factory.mktemp("any")
    (top / "out").mkdir()
    (top / "out/kept").write_bytes(b"kept")
    (top / "work").mkdir()
    members = [
        (name, ("link", str(top / "out")) if content == ("link", "OUT") else content) for name, content in members
    ]
    with contextlib.suppress(BadTar):
        unpack(make_tar(members), top / "work")
    assert sorted(path.name for path in top.iterdir()) == ["out", "work"]
    assert [path.name for path in (top / "out").iterdir()] == ["kept"]
    assert (top / "out/kept").read_bytes() == b"kept"
    assert (top / "out/kept").stat().st_nlink == 1
    for folder, folders, files in os.walk(top / "work"):
        assert not {".git", "git~1"} & {name.lower() for name in [*folders, *files]}, folder


@pytest.mark.parametrize(
    "damage", [lambda tar: tar[:700], lambda tar: b"x" + tar[1:], lambda tar: b"", lambda tar: tar[:512]]
)
def test_a_damaged_archive_is_refused(tmp_path, damage):
    with pytest.raises(BadTar):
        unpack(damage(make_tar([("a", b"hello")])), tmp_path)


def test_the_run_sees_the_source(bot, run):
    bot.set_source({"go.sh": b"#!/bin/sh\necho from the repository\n", "data/x": b"1"})
    run("./go.sh; cat data/x")
    assert bot.output == b"from the repository\n1"
    assert bot.phases == ["running"]  # the source comes with the claim


def test_a_git_folder_comes_apart_and_git_may_work_there(bot, run):
    bot.set_source({"a": b"1"})
    bot.git_tar = make_tar([("HEAD", b"x" * 40), ("objects/pack/p.pack", b"pack"), ("refs/", b"")])
    agent = run("cat .git/HEAD .git/objects/pack/p.pack; env | grep ^GIT_ | sort")
    work = str(agent.root / "work")
    told = ["GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", f"GIT_CONFIG_VALUE_0={work}"]
    assert bot.output.decode().split("\n") == ["x" * 40 + "pack" + told[0], *told[1:], ""]
    assert bot.end["result"] == "passed"


def test_a_source_that_attacks_fails_the_run_before_any_command(bot, run):
    bot.source = "c" * 40
    bot.source_tar = make_tar([("../evil", b"x")])
    agent = run("echo never")
    assert (bot.end["result"], bot.end["reason"]) == ("failed", "source")
    assert "../evil" in bot.end["detail"]
    assert bot.output == b""
    assert not (agent.root / "evil").exists()


def test_a_source_of_another_commit_fails_the_run(bot, run):
    bot.set_source({"a": b"x"})
    bot.source = "d" * 40
    run("echo never")
    assert (bot.end["result"], bot.end["reason"]) == ("failed", "source")
    assert "c" * 40 in bot.end["detail"]
    assert bot.output == b""
