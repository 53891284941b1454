"""Errors of ours on their way to a person."""

from __future__ import annotations

import click

from gpurun.domain.errors import GpurunError, UserError


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
    click.echo(f"{command}: {error}", err=True)
    if isinstance(error, UserError) and error.hint:
        click.echo(error.hint, err=True)
