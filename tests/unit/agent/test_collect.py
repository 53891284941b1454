"""Artifacts: what is taken, what is left out and told, and that the bytes arrive."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpurun_agent.collect import LeftOut, _send_together, size_text
from gpurun_agent.globs import Globs
from gpurun_agent.tree import Found, NoFile, Outside, Tree
from tests.unit.agent.fake_bot import with_code

FILES = ["a.txt", "b.log", "out/c.txt", "out/deep/d.txt", "out/deep/e.bin", "other/f.txt", ".hidden/g.txt"]


def left_out(bot) -> str:
    """As a comment shows it."""
    return " ".join(bot.end["left_out"].split("\n"))


def found(folder, *patterns: str) -> dict[str, str]:
    """Trouble by path; empty for what can be taken."""
    tree = Tree.of(str(folder))
    try:
        globs = Globs([os.fsencode(pattern) for pattern in patterns])
        return {os.fsdecode(one.path): one.trouble for one in tree.files(globs, lambda: None)}
    finally:
        tree.close()


def write(folder, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.txt", ["a.txt"]),
        ("**/*.txt", [".hidden/g.txt", "a.txt", "other/f.txt", "out/c.txt", "out/deep/d.txt"]),
        ("out/**", ["out/c.txt", "out/deep/d.txt", "out/deep/e.bin"]),
        ("out", ["out/c.txt", "out/deep/d.txt", "out/deep/e.bin"]),
        ("out/*", ["out/c.txt", "out/deep/d.txt", "out/deep/e.bin"]),
        ("out/**/d.txt", ["out/deep/d.txt"]),
        ("out/**/**/c.txt", ["out/c.txt"]),
        ("**/deep/*", ["out/deep/d.txt", "out/deep/e.bin"]),
        ("./o*/[cf].t?t", ["other/f.txt", "out/c.txt"]),
        ("[!a]*", [".hidden/g.txt", "b.log", "other/f.txt", "out/c.txt", "out/deep/d.txt", "out/deep/e.bin"]),
        ("**", sorted(FILES)),
        (".", sorted(FILES)),
        ("a.txt/x", []),
        ("nothing*", []),
        ("../*", []),
        ("", []),
    ],
)
def test_patterns(tmp_path, pattern, names):
    write(tmp_path, *FILES)
    assert found(tmp_path, pattern) == dict.fromkeys(names, "")


def test_a_file_belongs_to_the_first_pattern_that_means_it(tmp_path):
    write(tmp_path, "a.txt", "b.txt")
    tree = Tree.of(str(tmp_path))
    patterns = [(one.pattern, one.path) for one in tree.files(Globs([b"b*", b"**"]), lambda: None)]
    tree.close()
    assert patterns == [(1, b"a.txt"), (0, b"b.txt")]


NAMES = st.sampled_from(["a", "b", "aa", ".a"])
PARTS = st.sampled_from(["a", "b", "*", "**", "?", "[!b]", ".a", "*a"])


def plainly(path: list[str], pattern: list[str]) -> bool:
    """The definition, without any care for time."""
    if not pattern:
        return True
    if not path:
        return all(part == "**" for part in pattern)
    if pattern[0] == "**":
        return plainly(path, pattern[1:]) or plainly(path[1:], pattern)
    one = {
        "*": lambda name: True, "?": lambda name: len(name) == 1, "[!b]": lambda name: len(name) == 1 and name != "b",
        "*a": lambda name: name.endswith("a"),
    }.get(pattern[0], lambda name: name == pattern[0])  # fmt: skip
    return one(path[0]) and plainly(path[1:], pattern[1:])


@given(path=st.lists(NAMES, min_size=1, max_size=5), pattern=st.lists(PARTS, min_size=1, max_size=5))
def test_a_path_is_meant_as_it_is_defined(path, pattern):
    globs = Globs(["/".join(pattern).encode()])
    assert (globs.match("/".join(path).encode()) == 0) == plainly(path, pattern)


def test_many_folders_do_not_keep_the_agent_busy():
    """Each way to divide the path among them would be looked at."""
    globs = Globs([b"**/a/" * 40 + b"b"])
    assert globs.match(b"a/" * 250 + b"c") == -1
    assert globs.match(b"a/" * 250 + b"b") == 0


# links


def test_links_count_only_when_they_lead_to_a_file_inside(tmp_path):
    work = tmp_path / "work"
    write(work, "real/a")
    (tmp_path / "secret").write_text("s")
    targets = {
        "in": "real/a", "again": "in", "up": "real/../real/a", "whole": str(work / "real/a"), "out": "../secret",
        "etc": "/etc/passwd", "beside": str(work) + "2/a", "far": "real/../../secret", "loop": ".", "folder": "real",
        "gone": "nowhere", "self": "self", "through": "real/a/b",
    }  # fmt: skip
    for name, target in targets.items():
        (work / name).symlink_to(target)
    out = "link that leads out of the work folder"
    assert found(work, "**") == {
        "in": "", "again": "", "up": "", "whole": "", "real/a": "", "out": out, "etc": out, "beside": out, "far": out,
        "loop": "link to a folder", "folder": "link to a folder", "gone": "link that leads to nothing",
        "self": "cannot be read: Too many levels of symbolic links", "through": "cannot be read: Not a directory",
    }  # fmt: skip


TARGETS = st.lists(st.sampled_from(["..", ".", "a", "b", "c", "l0", "l1", "l2"]), min_size=1, max_size=6)


@settings(max_examples=200)
@given(targets=st.lists(st.tuples(TARGETS, st.booleans()), min_size=3, max_size=3), path=TARGETS)
def test_nothing_is_ever_opened_outside(tmp_path_factory, targets, path):
    """Files inside and outside have the same names; only the bytes tell them apart."""
    top = tmp_path_factory.mktemp("tree")
    try:
        work = top / "work"
        write(work, "a/b", "a/c/b", "b")
        for name in ("a/b", "b", "c"):
            (top / name).parent.mkdir(exist_ok=True)
            (top / name).write_text("outside")
        for number, (target, absolute) in enumerate(targets):
            (work / f"l{number}").symlink_to((f"{work}/" if absolute else "") + "/".join(target))
        tree = Tree.of(str(work))
        try:
            file = tree.open("/".join(path).encode())
            assert not os.read(file, 100).startswith(b"outside")
            os.close(file)
        except (OSError, Outside, NoFile):
            pass
        finally:
            tree.close()
    finally:
        shutil.rmtree(top)


def test_a_folder_that_becomes_a_link_while_it_is_walked_is_not_followed(tmp_path):
    work = tmp_path / "work"
    write(work, "a/1", "b/2", "c/3")
    write(tmp_path, "else/2")
    tree = Tree.of(str(work))
    walk = tree.files(Globs([b"**"]), lambda: None)
    assert next(walk).path == b"a/1"
    (work / "b").rename(work / "old")
    (work / "b").symlink_to(tmp_path / "else")
    assert [(one.path, one.trouble) for one in walk] == [
        (b"b", "link that leads out of the work folder"),
        (b"c/3", ""),
    ]
    with pytest.raises(Outside):
        tree.open(b"b/2")
    tree.close()


def test_a_folder_that_is_swapped_between_look_and_open_is_not_followed(tmp_path, monkeypatch):
    """The kernel refuses what `stat` had called a folder."""
    work = tmp_path / "work"
    write(work, "b/2")
    write(tmp_path, "else/2")
    tree = Tree.of(str(work))
    stat = os.stat

    def stat_and_swap(name, **where):
        seen = stat(name, **where)
        if name == b"b" and not (work / "b").is_symlink():
            (work / "b").rename(work / "old")
            (work / "b").symlink_to(tmp_path / "else")
        return seen

    monkeypatch.setattr(os, "stat", stat_and_swap)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        tree.open(b"b/2")
    tree.close()


def test_a_work_folder_that_became_a_link_is_no_tree(tmp_path):
    (tmp_path / "work").symlink_to("/")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        Tree.of(str(tmp_path / "work"))


def test_pipes_and_unreadable_things_are_told_and_waited_for_by_nobody(tmp_path):
    write(tmp_path, "a", "z/b")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    deep = tmp_path
    for _ in range(60):
        deep = deep / "0123456789"
    deep.mkdir(parents=True)
    told = found(tmp_path, "**")
    too_long = {path for path, trouble in told.items() if trouble == "path of more than 512 bytes"}
    assert [len(path) // 11 for path in too_long] == [46]
    assert {path: trouble for path, trouble in told.items() if path not in too_long} == {
        "a": "", "z/b": "", "pipe": "pipe, socket or device", "to-pipe": "pipe, socket or device",
    }  # fmt: skip


# what is sent


def test_artifacts_arrive_whole(bot, run):
    bot.artifact_globs = ["out/**", "missing/*", "out/small"]
    run(
        "mkdir -p out; yes abcdefgh | head -c 9000000 > out/big;"
        "printf x > 'out/ü b%c'; : > out/empty; echo s > out/small"
    )
    assert set(bot.artifacts) == {"out/big", "out/ü b%c", "out/empty", "out/small"}
    assert bot.artifacts["out/big"] == (b"abcdefgh\n" * 1_000_001)[:9_000_000]
    assert bot.artifacts["out/empty"] == b""
    assert b"::gpurun:: artifacts: nothing matches missing/*\n" in bot.log
    assert bot.phases == ["running", "collecting"]
    assert left_out(bot) == ""


def test_what_is_over_a_limit_is_left_out_and_told(bot, run):
    bot.artifact_globs = ["first/*", "**/*.bin"]
    bot.artifact_limits = {"artifact_files": 4, "artifact_file_bytes": 1000, "artifact_bytes": 2500}
    run(
        "mkdir first; head -c 1001 /dev/zero > a.bin; head -c 5000 /dev/zero > b.bin; head -c 900 /dev/zero > c.bin;"
        "head -c 900 /dev/zero > d.bin; head -c 10 /dev/zero > e.bin; head -c 10 /dev/zero > f.bin;"
        "head -c 1000 /dev/zero > first/z; echo g > g.txt"
    )
    assert list(bot.artifacts) == ["first/z", "c.bin", "e.bin", "f.bin"]
    assert left_out(bot) == (
        "2 (5.9 KiB together), larger than the 1000 B that one file may have: a.bin, 1001 B; b.bin, 4.9 KiB. "
        "1 (900 B together), more than the 2.4 KiB that all files may have together: d.bin, 900 B."
    )
    assert b"::gpurun:: artifacts left out: 2 (5.9 KiB together), larger" in bot.log


def test_more_files_than_are_kept_are_counted(bot, run):
    bot.artifact_globs = ["*"]
    bot.artifact_limits = {"artifact_files": 2}
    run("for i in 1 2 3 4 5 6 7 8 9; do echo $i > $i; done")
    assert list(bot.artifacts) == ["1", "2"]
    assert left_out(bot) == (
        "7 (14 B together), more than the 2 files that are kept: 3, 2 B; 4, 2 B; 5, 2 B; 6, 2 B; 7, 2 B; and 2 more."
    )


def test_odd_names_are_left_out_by_name(bot, run):
    bot.artifact_globs = ["*"]
    run("printf x > good; printf x > 'a\n::gpurun:: b'; printf x > 'back\\slash'; printf x > \"$(printf 'bad\\377')\"")
    assert bot.artifacts == {"good": b"x"}
    assert bot.end["left_out"].splitlines() == [
        "1 (1 B together), name with a character that is not printable:",
        "a\\n::gpurun:: b, 1 B.",
        "1 (1 B together), name with a backslash:",
        "back\\slash, 1 B.",
        "1 (1 B together), name that is not UTF-8:",
        "bad\\xff, 1 B.",
    ]
    ours = [line for line in bot.log.splitlines() if line.startswith(b"::gpurun:: ")]
    assert len(ours) == 4  # `run` and a reason each


def test_a_pattern_whose_files_another_one_means_first_is_not_called_empty(bot, run):
    bot.artifact_globs = ["out/**", "out/a.txt", "missing\n::gpurun:: all is well", "out/*.txt"]
    run("mkdir out; echo 1 > out/a.txt")
    assert set(bot.artifacts) == {"out/a.txt"}
    assert [line for line in bot.log.splitlines() if b"nothing matches" in line] == [
        b"::gpurun:: artifacts: nothing matches missing\\n::gpurun:: all is well"
    ]


def test_links_out_of_the_tree_are_refused_and_told(bot, run):
    bot.artifact_globs = ["out"]
    run("mkdir out; echo x > out/x; ln -s /etc/passwd out/passwd; ln -s x out/y; ln -s /proc/self/environ out/env")
    assert bot.artifacts == {"out/x": b"x\n", "out/y": b"x\n"}
    assert left_out(bot) == "2, link that leads out of the work folder: out/env; out/passwd."
    assert bot.end["result"] == "passed"


def test_a_folder_swapped_while_it_is_sent_gives_nothing_of_elsewhere(bot, start):
    bot.artifact_globs = ["out/**"]
    bot.run = "mkdir -p out/in; head -c 300000 /dev/zero > out/a; echo 2 > out/in/b; echo 3 > out/z"
    swapped = []

    def swap(path):
        if path == "out/a" and not swapped:
            work = agent.root / "work/out"
            (work / "in").rename(work / "was")
            (work / "in").symlink_to(agent.root / "home")
            (agent.root / "home/b").write_text("not the job's")
            swapped.append(path)

    bot.before_artifact = swap
    agent = start()
    assert agent.wait() == 0
    assert bot.artifacts == {"out/a": bytes(300_000), "out/z": b"3\n"}
    assert left_out(bot) == "1 (2 B together), file that changed or vanished meanwhile: out/in/b, 2 B."


def test_a_work_folder_that_the_job_swapped_for_a_link_gives_nothing(bot, run):
    bot.artifact_globs = ["etc/passwd", "**/passwd"]
    run('cd ..; mv work old; ln -s / work; echo "$PWD"')
    assert bot.artifacts == {}
    assert left_out(bot).startswith("No artifacts: the folder in which the job started cannot be read")
    assert bot.end["result"] == "passed"


def test_a_file_that_the_bot_refuses_does_not_keep_others_back(bot, run):
    bot.artifact_globs = ["*"]
    bot.add_artifact = lambda path, query, body: (
        (413, b"A file may have 1 bytes.") if path == "a" else type(bot).add_artifact(bot, path, query, body)
    )
    run("echo 1 > a; echo 2 > b")
    assert bot.artifacts == {"b": b"2\n"}
    assert left_out(bot) == "1 (2 B together), refused (413): A file may have 1 bytes.: a, 2 B."


# what keeps them


def test_a_failed_command_leaves_artifacts_too(bot, run):
    bot.artifact_globs = ["report"]
    run("echo why > report; exit 3")
    assert bot.artifacts == {"report": b"why\n"}
    assert bot.end["exit_code"] == "3"


def test_a_failed_setup_leaves_artifacts_too(bot, run):
    bot.artifact_globs = ["report"]
    bot.setup = "echo why > report; exit 3"
    run("echo never")
    assert bot.artifacts == {"report": b"why\n"}
    assert bot.end["reason"] == "setup"


def test_a_job_that_ran_too_long_leaves_artifacts(bot, run):
    bot.artifact_globs = ["report"]
    bot.max_duration_s = 1
    run("echo half > report; sleep 60")
    assert bot.artifacts == {"report": b"half\n"}
    assert (bot.end["result"], bot.end["reason"]) == ("timeout", "max_duration")


def test_a_cancelled_job_leaves_artifacts(bot, start):
    bot.artifact_globs = ["report"]
    bot.run = "trap 'echo last >> report; exit 1' TERM; echo half > report; echo ready; while :; do sleep 0.05; done"
    agent = start()
    bot.wait_for_log(b"ready")
    bot.cancel = True
    assert agent.wait() == 0
    assert bot.end["result"] == "cancelled"
    assert bot.artifacts == {"report": b"half\nlast\n"}


def test_a_job_cancelled_before_its_command_leaves_nothing(bot, run):
    bot.artifact_globs = ["*"]
    bot.source = "c" * 40
    bot.set_source({"a": b"of the commit"})
    bot.cancel = True
    run("echo never")
    assert bot.end["result"] == "cancelled"
    assert bot.artifacts == {}


def test_who_waits_for_the_end_waits_only_so_long(bot, start):
    bot.artifact_globs = ["*"]
    bot.run = "head -c 300000 /dev/zero > a; echo 2 > b; echo ready; while :; do sleep 0.05; done"
    agent = start(first=with_code("protocol", "COLLECT_S = 1"))
    bot.wait_for_log(b"ready")
    bot.add_artifact = lambda path, query, body: (
        (503, b"not now") if path == "b" else type(bot).add_artifact(bot, path, query, body)
    )
    bot.cancel = True
    assert agent.wait() == 0
    assert bot.end["result"] == "cancelled"
    assert bot.artifacts == {"a": bytes(300_000)}
    assert left_out(bot) == (
        "Not all artifacts were collected in the time that was left. 1 (2 B together), not sent before the end: b, 2 B."
    )


def test_an_interrupted_artifact_goes_on_at_next(bot, run):
    bot.artifact_globs = ["big"]
    bot.artifact_parts["big"] = bytearray(b"a" * 1000)
    run("yes a | tr -d '\\n' | head -c 5000000 > big")
    assert bot.artifacts == {"big": b"a" * 5_000_000}


def test_small_files_are_sent_together_and_in_their_order(bot, run):
    bot.artifact_globs = ["last", "*"]
    run("for i in $(seq 100 349); do echo $i > $i; done; head -c 300000 /dev/zero > 200; : > 201; echo l > last")
    names = [str(number) for number in range(100, 350)]
    assert list(bot.artifacts) == ["last", *names]
    assert bot.artifacts["200"] == bytes(300_000)
    assert bot.artifacts["201"] == b""
    requests = [one for one in bot.requests if one.startswith("PUT artifacts")]
    assert requests == ["PUT artifacts"] * 2 + ["PUT artifacts/200"] + ["PUT artifacts"] * 2


def test_small_files_are_not_sent_together_beyond_what_the_bot_takes(bot, run):
    bot.artifact_globs = ["*"]
    run("for i in 1 2 3 4 5 6 7 8 9 a b c d e f g h i j k l m n o p q; do head -c 262144 /dev/zero > $i; done")
    assert len(bot.artifacts) == 26
    assert [one for one in bot.requests if one.startswith("PUT artifacts")] == ["PUT artifacts"] * 4


def test_a_small_file_that_grows_is_sent_whole(bot, start, monkeypatch):
    from types import SimpleNamespace

    sent = []
    run = SimpleNamespace(breathe=lambda: None, ask=lambda request: sent.append(request) or SimpleNamespace(
        status=200, fields=lambda: [("next", b"300000")], number=lambda name, default: 300_000, text=lambda: "",
    ))  # fmt: skip
    (bot.folder / "a").write_bytes(b"1")
    (bot.folder / "b").write_bytes(bytes(300_000))
    tree = Tree.of(str(bot.folder))
    waiting = [Found([0], b"a", 1), Found([0], b"b", 1)]
    left_out = LeftOut()
    assert _send_together(run, tree, waiting, left_out) == 2
    tree.close()
    assert [one.target.partition("?")[0] for one in sent] == ["/agent/v1/artifacts", "/agent/v1/artifacts/b"]
    assert left_out.sentences() == []


@given(sizes=st.lists(st.integers(0, 2**40), max_size=20))
def test_what_was_left_out_is_counted_whole(sizes):
    left_out = LeftOut()
    for number, size in enumerate(sizes):
        left_out.add("too odd", b"%d" % number, size)
    sentences = left_out.sentences()
    assert len(sentences) == bool(sizes)
    if sizes:
        assert sentences[0].startswith(f"{len(sizes)}")
        assert sum(sizes) == 0 or f"({size_text(sum(sizes))} together)" in sentences[0]
