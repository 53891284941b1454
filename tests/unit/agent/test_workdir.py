"""Commands start in the folder that the job names, and nowhere outside of the commit."""

from __future__ import annotations

import pytest

from gpurun_agent.ending import Ended
from gpurun_agent.workdir import find


def test_setup_run_and_artifacts_are_relative_to_it(bot, run):
    bot.set_source({"a/b/in.txt": b"x", "top.txt": b"t"})
    bot.workdir, bot.setup, bot.artifact_globs = "a/b", "cat in.txt > made", ["made", "top.txt"]
    agent = run("pwd; cat made; cat ../../top.txt")
    assert bot.output.split() == [f"{agent.root}/work/a/b".encode(), b"xt"]
    assert bot.artifacts == {"made": b"x"}
    assert b"nothing matches top.txt" in bot.log


def test_a_folder_that_the_commit_does_not_have_ends_the_run_before_anything_starts(bot, run):
    bot.set_source({"a/in.txt": b"x"})
    bot.workdir, bot.setup = "a/c", "echo never"
    run("echo never")
    assert (bot.end["result"], bot.end["reason"]) == ("failed", "workdir")
    assert bot.end["detail"] == "The commit has no folder a/c, in which the job should start."
    assert bot.log == b""
    assert "exit_code" not in bot.end


def test_a_file_is_no_folder(bot, run):
    bot.set_source({"a": b"x"})
    bot.workdir = "a"
    run("echo never")
    assert bot.end["reason"] == "workdir"


def test_a_job_that_puts_a_link_in_its_place_gets_nothing_collected_from_elsewhere(bot, run):
    bot.set_source({"a/in.txt": b"x"})
    bot.workdir, bot.artifact_globs = "a", ["**"]
    run("cd ..; rm -r a; ln -s /etc a")
    assert bot.end["result"] == "passed"
    assert bot.end["left_out"] == "No artifacts: the folder a leads out of the commit."
    assert bot.artifacts == {}


def test_links_count_as_far_as_they_stay_inside(tmp_path):
    work = tmp_path / "work"
    (work / "real").mkdir(parents=True)
    (work / "inside").symlink_to("real")
    (work / "up").symlink_to("..")
    (work / "away").symlink_to("/etc")
    (work / "sibling").symlink_to(f"{work}-other")
    (tmp_path / "work-other").mkdir()
    assert find(str(work), "inside") == str(work / "real")
    assert find(str(work), ".") == str(work)
    for name in ("up", "away", "sibling", "..", "/etc", "up/work-other"):
        with pytest.raises(Ended, match="leads out of the commit"):
            find(str(work), name)
    with pytest.raises(Ended, match="has no folder none"):
        find(str(work), "none")
