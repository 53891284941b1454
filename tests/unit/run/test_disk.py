"""What a use of the disk means for an attempt, and how it ends for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gpurun.domain.offer import DiskUse
from gpurun.domain.plan import Resources
from gpurun.domain.run import AttemptState, Phase, Result, ResultKind
from gpurun.run.decide_attempt import AskLastLog, LeftBehind
from gpurun.run.disk import end_for_disk, told_or_for_disk
from tests.fakes.clock import START
from tests.unit.run.test_decide_attempt import CANCELLED, PASSED, RUN, decide, later, live, moved, saved

LITTLE = DiskUse(used_mib=100, limit_mib=1024)
TOO_MUCH = DiskUse(used_mib=1400, limit_mib=1024)
FULL_HOST = DiskUse(used_mib=5_000, limit_mib=9_000, host_free_mib=1_000)
ASKED = replace(RUN, plan=replace(RUN.plan, resources=Resources(disk_mib=1024)))


@pytest.mark.parametrize("disk", [None, LITTLE, DiskUse(used_mib=1024, limit_mib=1024)])
def test_an_attempt_within_its_limit_goes_on(disk):
    assert end_for_disk(live(disk=disk), RUN) is None
    assert saved(decide(live(disk=disk))).row.stop_asked_at is None


@pytest.mark.parametrize(
    ("run", "disk", "kind", "reason", "sentence"),
    [
        (ASKED, TOO_MUCH, ResultKind.FAILED, "disk", "The job used 1.4GB of the 1GB disk: ask for more with"),
        (RUN, TOO_MUCH, ResultKind.FAILED, "disk", "The job used 1.4GB of the 1GB that a job gets by default: ask"),
        (
            RUN,
            FULL_HOST,
            ResultKind.LOST,
            "host_disk",
            "The disk of the machine is full (1000MB left), and this job used most of it: 4.9GB.",
        ),
        (ASKED, replace(TOO_MUCH, host_free_mib=0), ResultKind.FAILED, "disk", "The job used 1.4GB of the 1GB disk"),
        (
            ASKED,
            DiskUse(used_mib=1025, limit_mib=1024),
            ResultKind.FAILED,
            "disk",
            "The job used 1.1GB of the 1GB disk",
        ),
        (
            RUN,
            DiskUse(used_mib=0, limit_mib=0, host_free_mib=0),
            ResultKind.LOST,
            "host_disk",
            "The disk of the machine",
        ),
    ],
)
def test_the_sentence_has_the_figures(run, disk, kind, reason, sentence):
    result = end_for_disk(live(disk=disk), run)
    assert (result.kind, result.reason) == (kind, reason)
    assert result.detail.startswith(sentence)


@pytest.mark.parametrize(("disk", "grace_s", "reason"), [(TOO_MUCH, 30, "disk"), (FULL_HOST, 3, "host_disk")])
def test_the_agent_is_told_to_stop_and_not_waited_for_long(disk, grace_s, reason):
    row = saved(decide(live(disk=disk))).row
    assert (row.state, row.stop_asked_at, row.due_at) == (AttemptState.LIVE, START, later(seconds=grace_s))
    assert moved(decide(row, later(seconds=grace_s - 0.5)))[0] is AttemptState.LIVE
    assert decide(row, later(seconds=grace_s)) == AskLastLog()
    ended = decide(row, later(seconds=grace_s), left_behind=LeftBehind())
    assert moved(ended)[0] is AttemptState.DESTROYING
    assert ended.result.reason == reason


@pytest.mark.parametrize(
    ("row", "grace_s"),
    [
        (live(phase=Phase.RUNNING), 30),
        (live(phase=Phase.COLLECTING), 150),
        (live(phase=Phase.COLLECTING, disk=TOO_MUCH), 150),
        (live(phase=Phase.COLLECTING, disk=FULL_HOST), 3),
    ],
)
@pytest.mark.parametrize("run", [CANCELLED, RUN])
def test_an_agent_that_sends_artifacts_gets_more_time(row, run, grace_s):
    """After a cancel, and after `max_duration`."""
    row = replace(row, stop_asked_at=START)
    assert moved(decide(row, later(seconds=grace_s - 0.5), run=run))[0] is AttemptState.LIVE
    assert decide(row, later(seconds=grace_s), run=run) == AskLastLog()


def test_a_host_that_fills_up_while_the_agent_is_waited_for_is_not_made_to_wait():
    row = replace(saved(decide(live(disk=TOO_MUCH))).row, disk=replace(TOO_MUCH, host_free_mib=10))
    assert moved(decide(row, later(seconds=5), left_behind=LeftBehind())) == (
        AttemptState.DESTROYING, ResultKind.FAILED, "disk",
    )  # fmt: skip


def test_a_cancel_stays_a_cancel():
    row = saved(decide(live(disk=TOO_MUCH), run=CANCELLED)).row
    ended = decide(row, later(seconds=30), run=CANCELLED, left_behind=LeftBehind())
    assert moved(ended) == (AttemptState.DESTROYING, ResultKind.CANCELLED, "asked")


STOPPED = Result(kind=ResultKind.CANCELLED, reason="asked")
KILLED = Result(kind=ResultKind.FAILED, reason="disk", detail="Not all artifacts were collected.")


@pytest.mark.parametrize("told", [STOPPED, KILLED])
def test_what_the_agent_tells_of_a_stop_for_the_disk_gets_our_figures(told):
    result = told_or_for_disk(told, live(disk=TOO_MUCH), ASKED)
    assert (result.kind, result.reason, result.exit_code) == (ResultKind.FAILED, "disk", None)
    assert result.detail == f"{end_for_disk(live(disk=TOO_MUCH), ASKED).detail} {told.detail}".strip()


@pytest.mark.parametrize(
    ("told", "attempt", "run"),
    [
        (PASSED, live(disk=TOO_MUCH), ASKED),  # it came first
        (Result(kind=ResultKind.FAILED, reason="exit", exit_code=3), live(disk=TOO_MUCH), ASKED),
        (STOPPED, live(disk=LITTLE), ASKED),
        (STOPPED, live(disk=TOO_MUCH), replace(ASKED, cancel_at=START)),
        (KILLED, live(), ASKED),  # a job that lies about itself
    ],
)
def test_everything_else_that_the_agent_tells_stays(told, attempt, run):
    assert told_or_for_disk(told, attempt, run) == told


def test_what_was_left_behind_gets_our_figures_too():
    row = saved(decide(live(disk=TOO_MUCH))).row
    ended = decide(row, START + timedelta(seconds=30), left_behind=LeftBehind(STOPPED))
    assert moved(ended) == (AttemptState.DESTROYING, ResultKind.FAILED, "disk")
