"""`gpurun db` and `gpurun audit`: what an operator does to a database."""

from __future__ import annotations

from pathlib import Path

from gpurun.adapters import store
from gpurun.cli.environment import read_settings
from gpurun.cli.output import say
from gpurun.cli.trouble import tell
from gpurun.domain.errors import GpurunError, UserError
from gpurun.wiring import Folders, database_url, server_folders


def upgrade() -> int:
    """0 when the tables are this version's afterwards."""
    try:
        place = where()
        if isinstance(place, Path):
            Folders(state=place.parent, cache=place.parent).made()
        store.upgrade(place)
    except GpurunError as error:
        return refused("gpurun db upgrade", error)
    say("The tables are those of this version.")
    return 0


def check() -> int:
    """0 when nothing is wrong with the tables."""
    try:
        problems = store.check(existing())
    except GpurunError as error:
        return refused("gpurun db check", error)
    for problem in problems:
        say(problem, err=True)
    if not problems:
        say("The tables are those of this version.")
    return int(bool(problems))


def adopt() -> int:
    """0 when the database belongs to this host afterwards."""
    try:
        store.adopt(existing())
    except GpurunError as error:
        return refused("gpurun db adopt", error)
    say("This database belongs to this host now.")
    return 0


def verify_audit() -> int:
    """0 when the chain holds, 1 with the first bad position."""
    try:
        report = store.verify_audit(existing())
    except GpurunError as error:
        return refused("gpurun audit verify", error)
    if report.first_bad is not None:
        say(f"The chain breaks at position {report.first_bad}: {report.problem}", err=True)
        return 1
    say(f"The chain holds: {report.sealed} sealed entries, {report.unsealed} waiting for the sealer.")
    return 0


def where() -> str | Path:
    """The database that `gpurun serve` with the same settings uses. Raises UserError."""
    settings = read_settings()
    return database_url(settings) or server_folders(settings).state / "gpurun.db"


def existing() -> str | Path:
    """The same, when it is there: looking at a file must not make it. Raises UserError."""
    place = where()
    if isinstance(place, Path) and not place.is_file():
        raise UserError(
            f"There is no database {place}.",
            hint="Set GPURUN_STATE_DIR or GPURUN_DATABASE_URL as for the server. `gpurun db upgrade` makes a new one.",
        )
    return place


def refused(command: str, error: GpurunError) -> int:
    """Exit code 2 and why."""
    tell(command, error)
    return 2
