"""Which revision a database has, and how it gets to ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from gpurun.adapters.store import tables
from gpurun.domain.errors import StoreBusy

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0007"
"""The newest revision under `migrations/versions`; a test compares."""

MIGRATIONS = Path(__file__).parent / "migrations"

# As Alembic makes it.
_VERSION_TABLE = """
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)
"""

_ADVISORY_LOCK = 0x6770_7572_756E
"""One migration at a time: "gpurun" in ASCII."""


def revision(connection: Connection) -> str | None:
    """What the database has; None when it is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def bring_up(connection: Connection) -> None:
    """The database has our revision afterwards. Data stays.

    Raises: StoreBusy when a newer gpurun has been here.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    found = revision(connection)
    if found == HEAD:
        return
    if found is None and not inspect(connection).has_table("meta"):
        _make(connection)
    else:
        _migrate(connection)


def alembic_config(connection: Connection) -> Config:
    """Alembic, told everything by code: there is no ini file."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def _make(connection: Connection) -> None:
    """A new database: the tables at once, without Alembic, whose import takes longer than a small run."""
    tables.metadata.create_all(connection, checkfirst=False)
    connection.execute(text(_VERSION_TABLE))
    connection.execute(text("INSERT INTO alembic_version (version_num) VALUES (:head)"), {"head": HEAD})


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.util import CommandError

    try:
        command.upgrade(alembic_config(connection), "head")
    except CommandError as exc:
        raise StoreBusy("The database has tables of a newer gpurun. Upgrade this one.") from exc


def problems(connection: Connection) -> tuple[str, ...]:
    """Differences between the database and `tables`, in sentences."""
    found = revision(connection)
    if found != HEAD:
        return (f"The database has revision {found or 'none'}, this gpurun needs {HEAD}. Type: gpurun db upgrade",)
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return tuple(f"The tables differ: {difference}" for difference in compare_metadata(context, tables.metadata))
