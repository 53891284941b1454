"""What an attempt's use of the disk means. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gpurun.domain.run import Attempt, Phase, Result, ResultKind, Run
from gpurun.run.timers import COLLECT_GRACE, FULL_HOST_GRACE, STOP_GRACE

REASON = "disk"
"""Of a result: the job wrote more than it may. The agent uses the same word."""
HOST_REASON = "host_disk"
"""The disk of the host is full, and the job may have done nothing wrong."""


def end_for_disk(attempt: Attempt, run: Run) -> Result | None:
    """The result of an attempt that must end for its disk; None for all others."""
    use = attempt.disk
    if use is None or not use.is_too_much:
        return None
    used = _gb(use.used_mib, up=True)
    if 0 < use.limit_mib < use.used_mib:
        asked = run.plan is not None and run.plan.resources.disk_mib > 0
        limit = f"the {_gb(use.limit_mib)} disk" if asked else f"the {_gb(use.limit_mib)} that a job gets by default"
        detail = f"The job used {used} of {limit}: ask for more with `resources: {{disk: …}}`, or write less."
        return Result(kind=ResultKind.FAILED, reason=REASON, detail=detail)
    left = _gb(use.host_free_mib or 0)
    detail = f"The disk of the machine is full ({left} left), and this job used most of it: {used}."
    return Result(kind=ResultKind.LOST, reason=HOST_REASON, detail=detail)


def told_or_for_disk(told: Result, attempt: Attempt, run: Run) -> Result:
    """What an agent told. That it was stopped for the disk is said with our figures."""
    stopped = told.kind is ResultKind.CANCELLED or (told.kind is ResultKind.FAILED and told.reason == REASON)
    ours = end_for_disk(attempt, run) if stopped and run.cancel_at is None else None
    if ours is None:
        return told
    return replace(ours, detail=f"{ours.detail} {told.detail}".strip(), left_out=told.left_out)


def stop_grace(attempt: Attempt) -> timedelta:
    """How long an agent that was told to stop has to end the job and to send what it left."""
    if attempt.disk is not None and attempt.disk.host_free_mib is not None:
        return FULL_HOST_GRACE
    return STOP_GRACE + COLLECT_GRACE if attempt.phase is Phase.COLLECTING else STOP_GRACE


def _gb(mib: int, *, up: bool = False) -> str:
    """`12.3GB`, `900MB`; in tenths, rounded down, or up for what is too much."""
    if mib < 1024:
        return f"{mib}MB"
    tenths = -(-mib * 10 // 1024) if up else mib * 10 // 1024
    return f"{tenths / 10:g}GB"
