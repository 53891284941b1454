"""Where each required job of a commit stands, and what the gate says of them together. Pure.

Nothing is green that did not run: a job counts when it has passed at this very commit, when somebody has overridden it
there, when an approver has let it go, or when its `paths` do not mean the pull request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from gpurun.domain.approval import Approval
from gpurun.domain.folder import job_in
from gpurun.domain.forge import Conclusion
from gpurun.domain.gate import Gate, Needed, Override, Pause
from gpurun.domain.run import Run, RunState, Verdict

WAITS_FOR_A_PERSON = frozenset({"expired", "budget", "approval"})
"""Reasons of `refused` that somebody can lift without a new commit."""


class Stand(StrEnum):
    """Of one job."""

    PASSED = "passed"
    OVERRIDDEN = "overridden"
    REMOVED = "removed"
    """The pull request removes it, and an approver of the commit agrees."""
    NOT_MEANT = "n/a by paths"
    RUNNING = "running"
    FAILED = "failed"
    UNREADABLE = "cannot be read"
    CHANGED = "the check itself changed"
    NOT_STARTED = "not started"
    NOT_APPROVED = "waits for approval"
    NOT_ENDED_WELL = "has to run again"
    """Cancelled, or refused for what a person can lift."""


COUNTS = frozenset({Stand.PASSED, Stand.OVERRIDDEN, Stand.REMOVED, Stand.NOT_MEANT})
"""All that the gate is green for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedFacts:
    """A required job, and what became of it at this commit."""

    needed: Needed
    runs: tuple[Run, ...] = ()
    """The newest one, or all of the newest `repeat`."""
    override: Override | None = None
    command: str = ""
    """The line that starts it."""
    run_url: str = ""
    """Of the run that the gate is about."""

    @property
    def name(self) -> str:
        """`smoke`, or `smoke (sub)`."""
        return job_in(self.needed.job, self.needed.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """Everything that `gpurun/gate` shows."""

    gate: Gate
    now: datetime
    needs: tuple[NeedFacts, ...] = ()
    approval: Approval | None = None
    """The one in force, when it is of this very commit."""
    approve_command: str = ""
    """The line that approves this commit."""
    pause: Pause | None = None
    others: tuple[GateFacts, ...] = ()
    """Of other open pull requests with this head: GitHub shows one `gpurun/gate` of a commit, whoever made it."""
    crowded: bool = False
    """More pull requests have this head than are looked at."""
    forge_url: str = ""


def newest(runs: Sequence[Run], needed: Needed) -> tuple[Run, ...]:
    """Of all runs of the commit, oldest first: the one of this job that counts, or all of its batch."""
    own = [run for run in runs if (run.job, run.folder) == (needed.job, needed.folder)]
    if not own:
        return ()
    last = own[-1]
    return tuple(run for run in own if run.narrow.batch == last.narrow.batch) if last.narrow.batch else (last,)


def stand_of(need: NeedFacts, facts: GateFacts) -> Stand:  # noqa: PLR0911 - one return a rule
    """The rules in their order."""
    needed = need.needed
    if need.override is not None:
        return Stand.OVERRIDDEN
    if needed.fault:
        return Stand.UNREADABLE
    if (needed.changed or needed.gone) and facts.approval is None:
        return Stand.CHANGED  # whatever its paths are: the next pull request would be held against it
    if needed.gone:
        return Stand.REMOVED
    if not needed.applies:
        return Stand.NOT_MEANT
    if not need.runs:
        return Stand.NOT_STARTED
    return min((_stand_of_run(run) for run in need.runs), key=_WORST_FIRST.index)


_WORST_FIRST = (Stand.FAILED, Stand.NOT_ENDED_WELL, Stand.NOT_APPROVED, Stand.RUNNING, Stand.PASSED)


def run_in_question(need: NeedFacts) -> Run | None:
    """That of the runs which says what the job's stand is."""
    return min(need.runs, key=lambda run: _WORST_FIRST.index(_stand_of_run(run)), default=None)


def _stand_of_run(run: Run) -> Stand:
    match run.verdict:
        case None if run.state is RunState.WAITING_APPROVAL:
            return Stand.NOT_APPROVED
        case None:
            return Stand.RUNNING
        case Verdict.PASSED:
            return Stand.PASSED
        case Verdict.CANCELLED:
            return Stand.NOT_ENDED_WELL
        case Verdict.REFUSED if run.reason in WAITS_FOR_A_PERSON:
            return Stand.NOT_ENDED_WELL
        case _:
            return Stand.FAILED


def gate_conclusion(facts: GateFacts) -> Conclusion | None:
    """None while something runs that may make it green, and before the first look.

    What the base branch of another pull request with this head requires holds here, too: else a pull request to a
    branch that requires little would turn the check green for all.
    """
    own = _conclusion(facts)
    if own == "success" and facts.crowded:
        return "action_required"
    found = [own, *(_conclusion(as_other(other)) for other in facts.others)]
    return next((one for one in _WORST if one in found), "success")


_WORST: tuple[Conclusion | None, ...] = ("failure", "action_required", None)


def as_other(other: GateFacts) -> GateFacts:
    """Of another pull request: without what only its own copy of the file asks for."""
    return replace(other, needs=tuple(need for need in other.needs if not need.needed.by_head))


def _conclusion(facts: GateFacts) -> Conclusion | None:
    look = facts.gate.look
    if look is None:
        return None
    stands = {stand_of(need, facts) for need in facts.needs}
    if Stand.FAILED in stands:
        return "failure"
    unsure = bool(look.unsure) and facts.approval is None
    if look.fault or unsure or facts.pause is not None or stands - COUNTS - {Stand.RUNNING}:
        return "action_required"
    return None if Stand.RUNNING in stands else "success"
