"""Artifacts: what patterns match, and that the bytes arrive."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun_agent.collect import glob, matches

FILES = ["a.txt", "b.log", "out/c.txt", "out/deep/d.txt", "out/deep/e.bin", "other/f.txt", ".hidden/g.txt"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.txt", ["a.txt"]),
        ("**/*.txt", [".hidden/g.txt", "a.txt", "other/f.txt", "out/c.txt", "out/deep/d.txt"]),
        ("out/**", ["out/c.txt", "out/deep/d.txt", "out/deep/e.bin"]),
        ("out", ["out/c.txt", "out/deep/d.txt", "out/deep/e.bin"]),
        ("out/*", ["out/c.txt", "out/deep/d.txt", "out/deep/e.bin"]),
        ("out/**/d.txt", ["out/deep/d.txt"]),
        ("**/deep/*", ["out/deep/d.txt", "out/deep/e.bin"]),
        ("./o*/[cf].t?t", ["other/f.txt", "out/c.txt"]),
        ("**", sorted(FILES)),
        ("nothing*", []),
        ("../*", []),
        ("", []),
    ],
)
def test_patterns(tmp_path, pattern, found):
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert sorted(path.decode() for path in matches(str(tmp_path), pattern)) == found


def test_links_count_only_when_they_stay_inside(tmp_path):
    work = tmp_path / "work"
    (work / "real").mkdir(parents=True)
    (work / "real" / "a").write_text("a")
    (tmp_path / "secret").write_text("s")
    (work / "in").symlink_to("real/a")
    (work / "out").symlink_to("../secret")
    (work / "etc").symlink_to("/etc")
    (work / "loop").symlink_to(".")
    (work / "gone").symlink_to("nowhere")
    assert sorted(matches(str(work), "**")) == [b"in", b"real/a"]


@pytest.mark.parametrize(
    ("name", "pattern", "fits"),
    [
        (b"abc", b"a*c", True),
        (b"abc", b"a?c", True),
        (b"abc", b"a[b]c", True),
        (b"abc", b"a[!b]c", False),
        (b"abc", b"[a-c]*", True),
        (b"[", b"[", True),
        (b"]", b"[]]", True),
        (b"abc", b"ab", False),
        (b"", b"*", True),
    ],
)
def test_one_name(name, pattern, fits):
    assert glob(name, pattern) == fits


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


def test_a_failed_command_leaves_artifacts_too(bot, run):
    bot.artifact_globs = ["report"]
    run("echo why > report; exit 3")
    assert bot.artifacts == {"report": b"why\n"}
    assert bot.end["exit_code"] == "3"


def test_an_interrupted_artifact_goes_on_at_next(bot, run):
    bot.artifact_globs = ["big"]
    bot.artifact_parts["big"] = bytearray(b"a" * 1000)
    run("yes a | tr -d '\\n' | head -c 5000000 > big")
    assert bot.artifacts == {"big": b"a" * 5_000_000}


WORDS = st.text(alphabet="ab*?", max_size=12)


@given(name=st.text(alphabet="ab", max_size=12), pattern=WORDS)
def test_names_match_as_in_the_shell(name, pattern):
    assert glob(name.encode(), pattern.encode()) == fnmatch.fnmatchcase(name, pattern)


def test_many_stars_do_not_keep_the_agent_busy():
    """It would neither stream nor hear that it shall stop."""
    assert not glob(b"a" * 255, b"*a" * 120 + b"b")
    assert glob(b"a" * 255, b"*a" * 120 + b"*")
