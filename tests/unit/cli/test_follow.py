"""What somebody who waits for a run is told."""

from gpurun.cli import follow
from gpurun_agent import run as agent_run
from tests.unit.report.situations import CHOSEN, LIVE


def test_the_grace_that_is_told_is_the_one_that_the_agent_gives() -> None:
    assert follow.CANCEL_GRACE_S == agent_run.CANCEL_GRACE_S


def test_what_a_first_interrupt_does_is_said_as_far_as_the_run_is():
    nothing_yet = "Stopping: nothing of the job has begun, and what was made ready for it is removed."
    assert [follow._stopping(attempts) for attempts in ((), (CHOSEN,))] == [nothing_yet] * 2
    assert follow._stopping((LIVE,)).startswith("Stopping: the job has 20 s to end, then its artifacts are kept")
