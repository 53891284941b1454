"""What an operator does to a database: `gpurun db upgrade|check|adopt`, `gpurun audit verify`, and the transactions of
`gpurun secret`. All of it blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from gpurun.adapters.store import schema
from gpurun.adapters.store.database import Database, open_postgres, open_sqlite
from gpurun.adapters.store.engine import PostgresStore, SqliteStore
from gpurun.adapters.store.filelock import FileLock
from gpurun.adapters.store.identity import adopt_here, host_of_file, host_of_server
from gpurun.adapters.store.transaction import Transaction
from gpurun.domain.errors import UserError
from gpurun.ports.clock import Chance, Clock
from gpurun.ports.store import ChainReport, Tx

T = TypeVar("T")


def open_store(url_or_path: str | Path, *, clock: Clock, chance: Chance) -> SqliteStore | PostgresStore:
    """`postgresql://…` with the database's clock, or a SQLite file with `clock`. Not open yet: use `async with`."""
    if _is_url(url_or_path):
        return PostgresStore(str(url_or_path), chance=chance)
    return SqliteStore(url_or_path, clock=clock, chance=chance)


def upgrade(url_or_path: str | Path) -> None:
    """The database has this version's tables afterwards. Opening a store does the same.

    Raises: StoreBusy when another process has the SQLite file, or a newer gpurun has been here.
    """
    with _exclusive(url_or_path) as database, database.connection() as connection:
        schema.bring_up(connection)


def check(url_or_path: str | Path) -> tuple[str, ...]:
    """What is wrong with the tables, in sentences; empty when nothing is. Changes nothing, and locks nobody out."""
    with _shared(url_or_path) as database, database.connection() as connection:
        return schema.problems(connection)


def adopt(url_or_path: str | Path) -> None:
    """The database belongs to this machine and place from now on; its original must be gone for good."""
    with _exclusive(url_or_path) as database, database.connection() as connection:
        schema.bring_up(connection)
        if _is_url(url_or_path):
            adopt_here(connection, host_of_server(connection))
        else:
            adopt_here(connection, host_of_file(Path(url_or_path)))


def verify_audit(url_or_path: str | Path) -> ChainReport:
    """Walks the chain of a database that another process may be using."""
    with _shared(url_or_path) as database:
        return database.view(Transaction.verify_audit)


def change(url_or_path: str | Path, fn: Callable[[Tx], T], *, clock: Clock) -> T:
    """What `fn` returned, committed, also while a server has the database: `fn` must touch nothing that a server keeps
    in its memory. SQLite lets writers of several processes take turns; the lock of its server is about leases.

    Raises: UserError when the tables are another version's.
    """
    with _shared(url_or_path, clock) as database:
        with database.connection() as connection:
            found = schema.revision(connection)
        if found != schema.HEAD:
            raise UserError(
                f"The database has revision {found or 'none'}, this gpurun needs {schema.HEAD}.",
                hint="Type: gpurun db upgrade",
            )
        return database.transact(fn).value


def _is_url(url_or_path: str | Path) -> bool:
    return "://" in str(url_or_path)


@contextmanager
def _exclusive(url_or_path: str | Path) -> Iterator[Database]:
    if _is_url(url_or_path):
        with _shared(url_or_path) as database:
            yield database
        return
    lock = FileLock(Path(url_or_path))
    try:
        with _shared(url_or_path) as database:
            yield database
    finally:
        lock.release()


@contextmanager
def _shared(url_or_path: str | Path, clock: Clock | None = None) -> Iterator[Database]:
    database = open_postgres(str(url_or_path), None) if _is_url(url_or_path) else open_sqlite(Path(url_or_path), clock)
    try:
        yield database
    finally:
        database.close()
