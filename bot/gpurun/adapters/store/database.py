"""Connections and transactions on one database; every method may block, and any thread may call it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gpurun.adapters.store.inbox import accept_on_sqlite
from gpurun.adapters.store.pieces import Outcome, append_on_sqlite
from gpurun.adapters.store.transaction import Transaction
from gpurun.domain.delivery import Delivery
from gpurun.domain.errors import Bug, Transient
from gpurun.domain.stream import Piece
from gpurun.ports.clock import Clock

T = TypeVar("T")

MAX_TRIES = 5
"""Of one transaction that PostgreSQL aborted because of another one."""

CONNECTIONS = 8
"""Threads and connections of one process on PostgreSQL."""

READERS = 2
"""Threads and connections that read SQLite beside its writer."""

_ABORTED_BY_ANOTHER = ("40001", "40P01")
"""serialization_failure, deadlock_detected. Source: PostgreSQL documentation, appendix A, read 2026-01."""

_SILENT: Final = {"hide_parameters": True}
"""Tracebacks end up in the log; parameters hold read keys, webhook bodies, and the secret behind the tokens."""

_STATEMENT_TIMEOUT_MS = 30_000
_CONNECT_TIMEOUT_S = 10
_DURABLE: Final = "gpurun_durable"
"""Of a connection to SQLite: whether a commit waits for the disk."""
_BUSY_TIMEOUT_MS = 10_000
"""How long SQLite waits for a checkpoint or a backup that holds the file."""


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """What a committed transaction returned, and whether a loop should look."""

    value: T
    news: bool


class Database:
    """Two engines: one that writes, one that reads."""

    def __init__(self, writer: Engine, reader: Engine, clock: Clock | None) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    def transact(self, fn: Callable[[Transaction], T], *, durable: bool = True) -> Done[T]:
        """Commits what `fn` did, or nothing. `fn` runs again when another transaction made the database abort it."""
        with translated():
            for _ in range(MAX_TRIES - 1):
                try:
                    return self._once(fn, durable=durable)
                except OperationalError as exc:
                    if not _aborted_by_another(exc):
                        raise
            return self._once(fn, durable=durable)

    def transact_together(
        self, fns: Sequence[Callable[[Transaction], Any]], *, durable: bool = True
    ) -> list[Done[Any] | BaseException]:
        """One commit for all, one outcome for each; a function that fails is undone and takes none of the others along.

        Raises: what the commit or the connection died of; then nothing happened.
        """
        with translated(), self._begin(durable=durable) as connection:
            return [self._apart(connection, fn) for fn in fns]

    def _apart(self, connection: Connection, fn: Callable[[Transaction], T]) -> Done[T] | BaseException:
        savepoint = connection.begin_nested()
        try:
            with translated():
                transaction = Transaction(connection, self._clock)
                value = fn(transaction)
        except BaseException as exc:  # noqa: BLE001 (whoever waits for it gets it)
            savepoint.rollback()
            return exc
        savepoint.commit()
        return Done(value, transaction.news)

    def accept(self, deliveries: Sequence[Delivery]) -> Done[list[bool]]:
        """One commit; False for each whose GUID was there."""
        return self.transact(lambda tx: tx.accept(deliveries))

    def append(self, pieces: Sequence[Piece]) -> Done[list[Outcome]]:
        """One commit, an outcome each. No news: who follows a stream asks for it."""
        return Done(self.transact(lambda tx: tx.append_pieces(pieces)).value, news=False)

    def view(self, fn: Callable[[Transaction], T]) -> T:
        """A snapshot; a write inside is an error."""
        with translated(), self._reader.begin() as connection:
            return fn(Transaction(connection, self._clock))

    def _once(self, fn: Callable[[Transaction], T], *, durable: bool) -> Done[T]:
        with self._begin(durable=durable) as connection:
            transaction = Transaction(connection, self._clock)
            value = fn(transaction)
        return Done(value, transaction.news)

    def _begin(self, *, durable: bool) -> AbstractContextManager[Connection]:
        """A transaction of the writer; every database is durable, some can do without."""
        return self._writer.begin()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """For migrations: a transaction without our words."""
        with translated(), self._writer.begin() as connection:
            yield connection

    def close(self) -> None:
        """Lets connections go."""
        self._writer.dispose()
        self._reader.dispose()


class SqliteDatabase(Database):
    """With a short way for the hot path, which needs a clock, and commits that the disk need not have yet."""

    def __init__(self, writer: Engine, reader: Engine, clock: Clock | None) -> None:
        super().__init__(writer, reader, clock)
        self._lazy_writer = writer.execution_options(**{_DURABLE: False})

    def _begin(self, *, durable: bool) -> AbstractContextManager[Connection]:
        return (self._writer if durable else self._lazy_writer).begin()

    def accept(self, deliveries: Sequence[Delivery]) -> Done[list[bool]]:
        with self._driver() as (driver, now):
            fresh = accept_on_sqlite(driver, deliveries, now)
        return Done(fresh, any(fresh))

    def append(self, pieces: Sequence[Piece]) -> Done[list[Outcome]]:
        with self._driver() as (driver, now):
            return Done(append_on_sqlite(driver, pieces, now), news=False)

    @contextmanager
    def _driver(self) -> Iterator[tuple[sqlite3.Connection, datetime]]:
        """The writing connection itself, for one durable transaction, and its time."""
        assert self._clock is not None
        with translated(), closing(self._writer.raw_connection()) as connection:
            driver = connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            _set_durable(connection.info, driver.execute, durable=True)
            yield driver, self._clock.now()


def open_sqlite(path: Path, clock: Clock | None) -> Database:
    """One writing connection, a few reading ones."""
    url = URL.create("sqlite", database=str(path))
    writer = create_engine(url, pool_size=1, max_overflow=0, connect_args=_sqlite_arguments(), **_SILENT)
    reader = create_engine(url, pool_size=READERS, max_overflow=0, connect_args=_sqlite_arguments(), **_SILENT)
    _on_connect(writer, "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL")
    _on_connect(reader, "PRAGMA query_only=ON")
    # The driver would begin a deferred transaction of its own, and late: a read that turns into a write can then
    # fail with "database is locked" whatever the timeout.
    event.listen(writer, "begin", _begin_immediate)
    event.listen(reader, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return SqliteDatabase(writer, reader, clock)


def _begin_immediate(connection: Connection) -> None:
    durable = connection.get_execution_options().get(_DURABLE, True)
    _set_durable(connection.info, connection.exec_driver_sql, durable=durable)
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _set_durable(info: MutableMapping[Any, Any], execute: Callable[[str], object], *, durable: bool) -> None:
    """Outside of a transaction, where SQLite allows it. `info` is the driver connection's memory.

    In WAL mode a commit under NORMAL is in the file and not yet on the disk; the next one under FULL takes it along.
    Source: sqlite.org/pragma.html#pragma_synchronous, read 2026-12-01.
    """
    if info.get(_DURABLE, True) is not durable:
        execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        info[_DURABLE] = durable


def open_postgres(url: str, clock: Clock | None) -> Database:
    """One pool, used in two ways."""
    engine = create_engine(
        postgres_url(url),
        pool_size=CONNECTIONS + 1,  # one more for the group commit of deliveries
        max_overflow=0,
        pool_pre_ping=False,
        pool_recycle=1800,
        connect_args={
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "options": f"-c statement_timeout={_STATEMENT_TIMEOUT_MS} -c idle_in_transaction_session_timeout=60000",
            "application_name": "gpurun",
        },
        **_SILENT,
    )
    reader = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return Database(engine, reader, clock)


def postgres_url(url: str) -> URL:
    """The address with the driver that we ship.

    Raises: StoreBusy never; ValueError for an address of something else.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() not in {"postgresql", "postgres"}:
        raise ValueError(f"{parsed.drivername} is no database that gpurun knows; use postgresql://…")
    return parsed.set(drivername="postgresql+psycopg")


@contextmanager
def translated() -> Iterator[None]:
    """Database errors in our words. Statements and parameters stay in the cause: they may hold user data.

    Raises: Transient (lost connection, full disk, lock), Bug (everything else).
    """
    try:
        yield
    except PoolTimeout as exc:
        raise Transient("All connections to the database are busy.") from exc
    except IntegrityError as exc:
        raise Bug(f"A row contradicts another one: {type(exc.orig).__name__}.") from exc
    except (OperationalError, InterfaceError) as exc:
        raise Transient(f"The database did not do its work: {_trouble(exc.orig)}.") from exc
    except sqlite3.IntegrityError as exc:
        raise Bug(f"A row contradicts another one: {type(exc).__name__}.") from exc
    except sqlite3.Error as exc:  # the hot path speaks to the driver itself
        raise Transient(f"The database did not do its work: {type(exc).__name__}.") from exc
    except OverflowError as exc:
        raise Bug("A number does not fit into its column.") from exc
    except StopIteration as exc:  # no future can hold it: whoever waits would wait for ever
        raise Bug("A transaction ended by StopIteration.") from exc
    except DBAPIError as exc:
        if "not a database" in str(exc.orig):  # SQLITE_NOTADB
            raise Bug("The file is no SQLite database.") from exc
        raise Bug(f"The database refused a statement: {type(exc.orig).__name__}.") from exc


def _trouble(error: BaseException | None) -> str:
    """What a connection failed of, which names server and port and no password; else only the kind of error."""
    lines = str(error).splitlines()
    # psycopg's errors have a `sqlstate`: the server's, None when there was no server to give one
    no_connection = getattr(error, "sqlstate", "") is None
    return lines[0].rstrip(".") if no_connection and lines else type(error).__name__


def _aborted_by_another(exc: OperationalError) -> bool:
    return getattr(exc.orig, "sqlstate", None) in _ABORTED_BY_ANOTHER


def _sqlite_arguments() -> dict[str, Any]:
    return {"isolation_level": None, "check_same_thread": False, "timeout": _BUSY_TIMEOUT_MS / 1000}


def _on_connect(engine: Engine, *pragmas: str) -> None:
    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(pragma)
        cursor.close()
