"""`gpurun db` and `gpurun audit`: what an operator does to a database."""

from __future__ import annotations

from pathlib import Path

import click

from gpurun.adapters import store
from gpurun.cli.environment import read_settings
from gpurun.domain.errors import GpurunError
from gpurun.wiring import server_folders


def upgrade() -> int:
    """0 when the tables are this version's afterwards."""
    try:
        store.upgrade(where())
    except GpurunError as error:
        return refused(error)
    click.echo("The tables are those of this version.")
    return 0


def check() -> int:
    """0 when nothing is wrong with the tables."""
    try:
        problems = store.check(where())
    except GpurunError as error:
        return refused(error)
    for problem in problems:
        click.echo(problem, err=True)
    if not problems:
        click.echo("The tables are those of this version.")
    return int(bool(problems))


def adopt() -> int:
    """0 when the database belongs to this host afterwards."""
    try:
        store.adopt(where())
    except GpurunError as error:
        return refused(error)
    click.echo("This database belongs to this host now.")
    return 0


def verify_audit() -> int:
    """0 when the chain holds, 1 with the first bad position."""
    try:
        report = store.verify_audit(where())
    except GpurunError as error:
        return refused(error)
    if report.first_bad is not None:
        click.echo(f"The chain breaks at position {report.first_bad}: {report.problem}", err=True)
        return 1
    click.echo(f"The chain holds: {report.sealed} sealed entries, {report.unsealed} waiting for the sealer.")
    return 0


def where() -> str | Path:
    """The database that `gpurun serve` with the same settings uses."""
    settings = read_settings()
    url = settings.database_url.get_secret_value()
    return url or server_folders(settings).state / "gpurun.db"


def refused(error: GpurunError) -> int:
    """Exit code 2 and why."""
    click.echo(str(error), err=True)
    return 2
