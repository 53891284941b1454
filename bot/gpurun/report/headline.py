"""Where a run stands: the words that comment, check and terminal share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from gpurun.domain.run import Attempt, AttemptState, Phase, Run, RunState, Verdict
from gpurun.report.facts import RunFacts
from gpurun.report.text import between, duration, usd

QUIET_S = 60.0
"""Silence of the agent that is shown."""

_VERDICTS = {
    Verdict.PASSED: ("✅", "passed"),
    Verdict.FAILED: ("❌", "failed"),
    Verdict.TIMEOUT: ("⌛", "timed out"),
    Verdict.LOST: ("⚠️", "lost (our side)"),
    Verdict.CANCELLED: ("🚫", "cancelled"),
    Verdict.REFUSED: ("⛔", "refused"),
}
_PHASES = {
    Phase.CLAIMED: "starting",
    Phase.SOURCE: "getting the source",
    Phase.WEIGHTS: "getting the models",
    Phase.SETUP: "setup",
    Phase.RUNNING: "running",
    Phase.COLLECTING: "collecting artifacts",
    Phase.FINISHED: "finishing",
}


@dataclass(frozen=True, slots=True)
class Status:
    """`word` is ours; `note` may hold untrusted text."""

    symbol: str
    word: str
    note: str = ""


def status(facts: RunFacts) -> Status:
    """The verdict, or the phase."""
    run = facts.run
    if run.verdict is not None:
        return Status(*_VERDICTS[run.verdict])
    if run.cancel_at is not None:
        return Status("⏳", "stopping", f"cancelled by {run.cancel_by}" if run.cancel_by else "")
    if run.is_held:
        return Status("⏸️", "paused", facts.pause.reason if facts.pause else "")
    return _live_status(run, facts)


def _live_status(run: Run, facts: RunFacts) -> Status:
    match run.state:
        case RunState.PLANNING:
            return Status("⏳", "pinning", _pinning(run))
        case RunState.WAITING_APPROVAL:
            return Status("✋", "waiting for approval", run.detail)
        case RunState.QUEUED:
            return Status("⏳", "queued", run.detail)
        case RunState.ACTIVE | RunState.ENDED:
            attempt = facts.attempt
            return _attempt_status(attempt, facts) if attempt else Status("⏳", "queued")
        case _:
            assert_never(run.state)


def _pinning(run: Run) -> str:
    what = "the plan"
    if run.pins.tree is None:
        what = "the commit"
    elif not run.pins.image_confirmed:
        what = "the image"
    elif run.pins.models:
        what = f"model or data set {len(run.pins.models) + 1}"
    return f"{what}; trying again: {run.last_error}" if run.tries else what


def _attempt_status(attempt: Attempt, facts: RunFacts) -> Status:
    match attempt.state:
        case AttemptState.CHOSEN | AttemptState.CREATING | AttemptState.LOOKING | AttemptState.UNSURE:
            return Status("⏳", "preparing", _preparing(attempt))
        case AttemptState.BOOTING if attempt.phase is None:
            return Status("⏳", "booting", attempt.preparing)
        case AttemptState.BOOTING | AttemptState.LIVE:  # what the agent says is true before the engine has looked
            return Status("⏳", _PHASES[attempt.phase] if attempt.phase else "starting", _quiet(attempt, facts))
        case AttemptState.DESTROYING | AttemptState.GONE | AttemptState.VOID:
            return Status("⏳", "finishing")
        case _:
            assert_never(attempt.state)


def _preparing(attempt: Attempt) -> str:
    return f"trying again: {attempt.last_error}" if attempt.tries and attempt.last_error else attempt.preparing


def _quiet(attempt: Attempt, facts: RunFacts) -> str:
    if attempt.last_seen_at is None:
        return ""
    silence = (facts.now - attempt.last_seen_at) / timedelta(seconds=1)
    return f"quiet for {duration(silence)}" if silence >= QUIET_S else ""


def took(facts: RunFacts) -> str:
    """From the request to the verdict; empty while it runs."""
    return between(facts.run.created_at, facts.run.ended_at)


def cost_words(facts: RunFacts) -> str:
    """`$0.00 (declared)`, `$0.11`; empty when nothing is known."""
    if not facts.costs:
        return ""
    amount = usd(sum(cost.usd_micro for cost in facts.costs))
    return f"{amount} (declared)" if any(cost.declared for cost in facts.costs) else amount


def where(facts: RunFacts) -> str:
    """The offer's label; untrusted. Empty before one was chosen."""
    return facts.attempt.offer.label if facts.attempt else ""
