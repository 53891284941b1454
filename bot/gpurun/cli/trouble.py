"""Errors of ours on their way to a person."""

from __future__ import annotations

from gpurun.cli.output import say
from gpurun.domain.errors import GpurunError, HubUnavailable, Transient, UserError

HUB_HINT = "GPURUN_HUB_URL names the hub, and GPURUN_HUB_TOKEN is the token that it gets."


def first_of_ours(error: BaseException) -> GpurunError | None:
    """The GpurunError that it is or, for a group, holds; None when anything else is in it."""
    if isinstance(error, GpurunError):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    found = [first_of_ours(one) for one in error.exceptions]
    return None if None in found else found[0]


def tell(command: str, error: GpurunError) -> None:
    """What happened and what to do about it, on stderr."""
    say(f"{command}: {error}", err=True)
    hint = error.hint if isinstance(error, UserError | Transient) else ""
    if isinstance(error, HubUnavailable):
        hint = hint or HUB_HINT
    if hint:
        say(hint, err=True)
