"""The folders of a job, for whoever the image's user is."""

from __future__ import annotations

import os

import pytest

from gpurun_agent import protocol
from gpurun_agent.ending import Ended
from gpurun_agent.surroundings import Surroundings

NAMES = ["home", "hub", "tmp", "work"]


def test_they_are_made_and_nothing_is_left_in_them(tmp_path):
    Surroundings({"GPURUN_ROOT": str(tmp_path)}).make_folders()
    assert sorted(path.name for path in tmp_path.rglob("*")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_b094_one_that_cannot_be_made_is_told_with_path_and_uid(tmp_path, name):
    (tmp_path / name).write_text("a file in its place")
    with pytest.raises(Ended) as caught:
        Surroundings({"GPURUN_ROOT": str(tmp_path)}).make_folders()
    end = caught.value.end
    assert (end.result, end.reason) == (protocol.LOST, protocol.AGENT)
    assert end.detail == f"uid {os.getuid()} of the image cannot write to {tmp_path / name}: File exists."


def test_b094_one_that_cannot_be_written_to_is_told(tmp_path):
    """A folder that is there and takes no files, for root, too: /proc."""
    (tmp_path / "hub").symlink_to("/proc/self")
    with pytest.raises(Ended, match=f"cannot write to {tmp_path / 'hub'}: No such file or directory"):
        Surroundings({"GPURUN_ROOT": str(tmp_path)}).make_folders()


def test_b094_a_run_ends_so_before_anything_starts(bot, run, tmp_path):
    (tmp_path / "hub").write_text("a file in its place")
    run("echo never", env={"GPURUN_ROOT": str(tmp_path)})
    assert (bot.end["result"], bot.end["reason"], bot.log) == ("lost", "agent", b"")
    assert str(tmp_path / "hub") in bot.end["detail"]
