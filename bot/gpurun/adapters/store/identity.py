"""Who this installation is, and whether the database is still where it was made."""

from __future__ import annotations

import base64
import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from gpurun.adapters.store import tables
from gpurun.adapters.store.audit import GENESIS
from gpurun.domain.errors import StoreBusy
from gpurun.ports.clock import Chance

MACHINE_ID = Path("/etc/machine-id")


@dataclass(frozen=True, slots=True)
class Identity:
    """Made once per database."""

    install_id: str
    """8 lower-case letters and digits."""
    install_secret: bytes
    """32 bytes; every token of an attempt is derived from it."""

    def __repr__(self) -> str:
        return f"Identity({self.install_id!r}, secret hidden)"


def identify(connection: Connection, chance: Chance, host: str) -> Identity:
    """The one row of `meta`, made by whoever comes first.

    Raises: StoreBusy when the database was made elsewhere: a copy must not touch the instances of its original.
    """
    meta = tables.meta
    fresh = postgresql.insert(meta) if connection.dialect.name == "postgresql" else sqlite.insert(meta)
    fresh = fresh.values(id=1, host=host, sealed=0, seal_hash=GENESIS, **_fresh(chance))
    connection.execute(fresh.on_conflict_do_nothing())
    row = connection.execute(select(meta)).mappings().one()
    if row["host"] != host:
        raise StoreBusy(
            "This database was made on another machine or in another place, so it may be a copy whose original still"
            " runs. If the original is gone for good, type: gpurun db adopt"
        )
    return Identity(row["install_id"], bytes(row["install_secret"]))


def adopt_here(connection: Connection, host: str) -> None:
    """From now on the database lives here. Name and secret stay, so that running instances stay ours."""
    connection.execute(update(tables.meta).values(host=host))


def host_of_file(path: Path) -> str:
    """The machine and the place of a SQLite file."""
    try:
        machine = MACHINE_ID.read_text(encoding="ascii").strip()
    except OSError:
        machine = ""
    return f"{machine or platform.node()}:{path.resolve()}"


def host_of_server(connection: Connection) -> str:
    """The PostgreSQL cluster and the database in it. A dump that is loaded elsewhere has another one."""
    allowed = connection.execute(text("SELECT has_function_privilege('pg_control_system()', 'execute')")).scalar_one()
    asked = text("SELECT system_identifier FROM pg_control_system()" if allowed else "SELECT 0")
    cluster = connection.execute(asked).scalar_one()
    database = connection.execute(text("SELECT oid FROM pg_database WHERE datname = current_database()")).scalar_one()
    return f"postgresql:{cluster}:{database}"


def _fresh(chance: Chance) -> dict[str, str | bytes]:
    name = hashlib.sha256(chance.token(32).encode()).digest()
    return {
        "install_id": base64.b32encode(name).decode().lower()[:8],
        "install_secret": hashlib.sha256(chance.token(32).encode()).digest(),
    }
