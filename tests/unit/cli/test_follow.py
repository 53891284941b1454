"""What somebody who waits for a run is told."""

from gpurun.cli import follow
from gpurun_agent import run as agent_run


def test_the_grace_that_is_told_is_the_one_that_the_agent_gives() -> None:
    assert follow.CANCEL_GRACE_S == agent_run.CANCEL_GRACE_S
