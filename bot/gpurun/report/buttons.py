"""The buttons of checks. GitHub sends an identifier back, of at most 20 characters."""

from __future__ import annotations

from gpurun.domain.forge import CheckAction
from gpurun.domain.money import usd_up
from gpurun.domain.run import Run, RunState
from gpurun.report.text import usd

RUN = CheckAction(label="Run", description="Start this job at this commit", identifier="run")
RERUN = CheckAction(label="Re-run", description="Start it again at this commit", identifier="rerun")
CANCEL = CheckAction(label="Cancel", description="Stop this run", identifier="cancel")
APPROVE = CheckAction(label="Approve", description="Allow exactly this commit", identifier="approve")


def run_buttons(run: Run) -> tuple[CheckAction, ...]:
    """Of the check of a run."""
    if run.verdict is not None:
        return (RERUN,)
    if run.cancel_at is not None:
        return ()
    if run.state is RunState.WAITING_APPROVAL:
        return approve_at(run), CANCEL
    return (CANCEL,)


def approve_at(run: Run) -> CheckAction:
    """With the ceiling that its price suggests, when it has one."""
    most = 0 if run.quote is None else usd_up(run.quote.worst_usd_micro)
    if not most:
        return APPROVE
    return CheckAction(
        label=f"Approve {usd(most)}",
        description="Allow exactly this commit, at most that",
        identifier=f"approve:{most}",
    )
