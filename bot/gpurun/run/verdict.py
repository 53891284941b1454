"""What the result of an attempt means for its run."""

from __future__ import annotations

from typing import assert_never

from gpurun.domain.run import Attempt, AttemptState, Phase, Result, ResultKind, Run, Verdict

_BEFORE_USER_CODE = frozenset({None, Phase.CLAIMED, Phase.SOURCE, Phase.WEIGHTS})
_USER_CODE = frozenset(Phase) - _BEFORE_USER_CODE
_SAME_AGAIN = frozenset({"auth", "invalid"})
"""Reasons that would meet the second attempt too."""


def verdict_of(result: Result, attempt: Attempt, run: Run) -> Verdict:  # noqa: PLR0911 - one return a kind
    """The only table of results and verdicts. Green comes from `passed` alone."""
    match result.kind:
        case ResultKind.PASSED:
            return Verdict.PASSED
        case ResultKind.FAILED:
            return Verdict.FAILED
        case ResultKind.TIMEOUT:
            return Verdict.TIMEOUT
        case ResultKind.REFUSED:
            return Verdict.REFUSED
        case ResultKind.CANCELLED:
            if run.cancel_at is not None:
                return Verdict.CANCELLED
            # nobody cancelled: the deadline had set the agent's one stop flag, or the host ended the instance
            return Verdict.TIMEOUT if attempt.stop_asked_at else Verdict.LOST
        case ResultKind.LOST | ResultKind.PREEMPTED:
            return Verdict.CANCELLED if run.cancel_at is not None and never_ran(attempt) else Verdict.LOST
        case _:
            assert_never(result.kind)


def never_ran(attempt: Attempt) -> bool:
    """User code did not start: another attempt repeats nothing. What the agent said once it cannot take back."""
    return attempt.phase in _BEFORE_USER_CODE and not any(phase.value in attempt.phase_times for phase in _USER_CODE)


def worth_a_retry(result: Result, attempt: Attempt, run: Run) -> bool:
    """Lost before user code ran, and a try is left."""
    return (
        result.kind in (ResultKind.LOST, ResultKind.PREEMPTED)
        and never_ran(attempt)
        and result.reason not in _SAME_AGAIN
        and run.cancel_at is None
        and run.attempts < run.max_attempts
    )


def cannot_claim(attempt: Attempt) -> bool:
    """The next attempt may be made: this one is over, or its claim is revoked."""
    return attempt.state in (AttemptState.GONE, AttemptState.VOID, AttemptState.UNSURE)


def end_is_ordered(attempt: Attempt) -> bool:
    """Nothing is left that a person would wait for; the instance's own end is the attempt row's business."""
    return attempt.destroy_asked_at is not None or cannot_claim(attempt) or attempt.state is AttemptState.LOOKING
