"""What every group of a transaction shares: the connection, the time, and how statements are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    BindParameter,
    Boolean,
    ClauseElement,
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Dialect,
    Executable,
    Select,
    Table,
    Update,
    bindparam,
    case,
    literal,
    literal_column,
    or_,
    text,
    true,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.compiler import SQLCompiler

from gpurun.adapters.store import tables
from gpurun.adapters.store.codec import Moment, micros, moment
from gpurun.domain.delivery import InboxState
from gpurun.domain.errors import Bug
from gpurun.domain.forge import RepoRef
from gpurun.domain.gate import GateState
from gpurun.domain.publication import PublicationState
from gpurun.domain.run import AttemptState, RunState, StrayState
from gpurun.ports.clock import Clock
from gpurun.ports.store import Kind, Lease

T = TypeVar("T")

Values = Mapping[str, Any]
"""Columns and what to write there."""

Row = Mapping[Any, Any]
"""A row by column name."""

RawRow = tuple[Any, ...]
"""As the driver gives it: columns in the order of the statement, times and structured values not decoded."""

WORK: Mapping[Kind, Table] = {
    Kind.INBOX: tables.inbox,
    Kind.RUN: tables.run,
    Kind.ATTEMPT: tables.attempt,
    Kind.PROVIDER_ACCOUNT: tables.provider_account,
    Kind.STRAY: tables.stray,
    Kind.PUBLICATION: tables.publication,
    Kind.GATE: tables.gate,
}

_OPEN_STATES: Mapping[Kind, tuple[str, ...]] = {
    Kind.INBOX: (InboxState.NEW,),
    Kind.RUN: tuple(state for state in RunState if state is not RunState.ENDED),
    Kind.ATTEMPT: tuple(state for state in AttemptState if state not in {AttemptState.GONE, AttemptState.VOID}),
    Kind.STRAY: (StrayState.SEEN, StrayState.DESTROYING),
    Kind.GATE: (GateState.OPEN,),
    Kind.PUBLICATION: tuple(state for state in PublicationState if state is not PublicationState.DEAD),
}
"""States with work left. A state that this version does not know is in none of them, so its row is left alone."""

SOON = timedelta(seconds=1)
"""Loops look twice as often by themselves: a row that is only given back until later is no news."""

# Building a statement costs more than running it, so those of the hot paths are built once, with these parameters.
NOW = bindparam("now_", type_=Moment())
KEY: BindParameter[Any] = bindparam("key_")
TOKEN: BindParameter[Any] = bindparam("token_")


def key_of(kind: Kind) -> Column[Any]:
    """The primary key."""
    (key,) = WORK[kind].primary_key.columns
    return key


def key_value(kind: Kind, id: str) -> str | int:
    """As the column holds it."""
    return int(id) if kind is Kind.INBOX else id


def repo_values(repo: RepoRef) -> dict[str, Any]:
    """The columns of a row that is of a repository."""
    return {"installation_id": repo.installation_id, "repo_name": repo.name, "repo_id": repo.id}


def repo_of(row: Row) -> RepoRef:
    """The repository of such a row."""
    return RepoRef(installation_id=row["installation_id"], name=row["repo_name"], id=row["repo_id"])


def is_open(kind: Kind) -> ColumnElement[bool]:
    """The row has work left."""
    if kind not in _OPEN_STATES:
        return true()
    states = ", ".join(f"'{state}'" for state in _OPEN_STATES[kind])  # our own words, as constants in the statement
    return literal_column(f"{kind.value}.state IN ({states})", Boolean())


def earlier(column: ColumnElement[Any], at: datetime) -> ColumnElement[Any]:
    """`at`, or what the column holds when that is sooner."""
    return earlier_of(column, literal(at, Moment()))


def earlier_of(column: ColumnElement[Any], at: ColumnElement[Any]) -> ColumnElement[Any]:
    """The same, for a time that the statement's parameters give."""
    return case((or_(column.is_(None), column > at), at), else_=column)


@cache
def _wake_one(kind: Kind) -> Update:
    due = WORK[kind].c.due_at
    woken = {"due_at": earlier_of(due, NOW), "woken_at": NOW}
    return update(WORK[kind]).where(key_of(kind) == KEY, is_open(kind)).values(woken)


@cache
def _wake_by(kind: Kind) -> Update:
    """Whoever holds the row looks once more before it lets go: what it writes as `due_at` must not hide this."""
    table = WORK[kind]
    held = case((table.c.lease_token.is_not(None), NOW), else_=table.c.woken_at)
    woken = {"due_at": earlier_of(table.c.due_at, bindparam("at_", type_=Moment())), "woken_at": held}
    return update(table).where(key_of(kind) == KEY, is_open(kind)).values(woken)


@cache
def _end_lease(kind: Kind) -> Update:
    """Further columns are given with the parameters."""
    table = WORK[kind]
    due = case((table.c.woken_at.is_not(None), bindparam("woken_", type_=Moment())), else_=_DUE)
    ended = {"due_at": due, "woken_at": None, "lease_token": None, "lease_until": None}
    return update(table).where(key_of(kind) == KEY, table.c.lease_token == TOKEN).values(ended)


_DUE = bindparam("due_", type_=Moment())


ROWS_KEPT = 64
"""Of each `Whole` and dialect: those that the steps of the runs under way read again and again. A row of a run may hold
128 KiB of texts."""


STATEMENTS_KEPT = 256


DIALECTS_KEPT = 4
"""A process has one for its writer and one for its readers."""


class Whole(Generic[T]):
    """Whole rows of a table as frozen values, built by `build`.

    A step reads the same rows again and again, and decoding them costs more than reading: a row that has not changed is
    the same value again.
    """

    def __init__(self, table: Table, build: Callable[[Row], T]) -> None:
        self._columns = tuple(table.c)
        self._build = build
        self.decoder = lru_cache(maxsize=DIALECTS_KEPT)(self._decoder)
        """By dialect: from the driver's row to the value."""

    def _decoder(self, dialect: Dialect) -> Callable[[RawRow], T]:
        decode = [column.type.dialect_impl(dialect).result_processor(dialect, None) for column in self._columns]
        names = [column.name for column in self._columns]
        build = self._build

        @lru_cache(maxsize=ROWS_KEPT)
        def value(raw: RawRow) -> T:
            parts = (part if step is None else step(part) for step, part in zip(decode, raw, strict=True))
            return build(dict(zip(names, parts, strict=True)))

        return value


@lru_cache(maxsize=STATEMENTS_KEPT)
def _words_of(statement: ClauseElement, dialect: Dialect) -> tuple[str, Values, tuple[str, ...]]:
    """SQL as the driver takes it, the statement's constants by name, and all names where it takes them by position."""
    compiled = statement.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)
    return str(compiled), compiled.params, tuple(compiled.positiontup or ())


class TransactionBase:
    """One transaction on one connection; used by one thread."""

    def __init__(self, connection: Connection, clock: Clock | None) -> None:
        self._connection = connection
        self._clock = clock
        self._now: datetime | None = None
        self._postgres = connection.dialect.name == "postgresql"
        self.news = False
        """Some row changed in a way that a loop may be waiting for."""

    def now(self) -> datetime:
        if self._now is None:
            self._now = self._clock.now() if self._clock else self._database_now()
        return self._now

    def _database_now(self) -> datetime:
        row = self._connection.execute(text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"))
        return moment(row.scalar_one())

    def _one(self, statement: Select[Any], parameters: Values | None = None) -> Row | None:
        return self._connection.execute(statement, parameters).mappings().one_or_none()

    def _all(self, statement: Select[Any], parameters: Values | None = None) -> Sequence[Row]:
        return self._connection.execute(statement, parameters).mappings().all()

    def _raw(self, statement: ClauseElement, parameters: Values) -> Sequence[RawRow]:
        """By the driver without Core, which costs several times what a short statement does.

        Parameters as columns hold them.
        """
        sql, values, names = self._words(statement, parameters)
        rows: Sequence[RawRow]
        if self._postgres:
            result = self._connection.exec_driver_sql(sql, values)
            assert result.cursor is not None
            rows = result.cursor.fetchall()
            result.close()
        else:
            rows = self._driver(sql, [values[name] for name in names]).fetchall()
        return rows

    def _change_raw(self, statement: ClauseElement, parameters: Values) -> None:
        """`_change` in the same way."""
        sql, values, names = self._words(statement, parameters)
        if self._postgres:
            count = self._connection.exec_driver_sql(sql, values).rowcount
        else:
            count = self._driver(sql, [values[name] for name in names]).rowcount
        self.news = self.news or count > 0

    def _words(self, statement: ClauseElement, parameters: Values) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        sql, constants, names = _words_of(statement, self._connection.dialect)
        return sql, {**constants, **parameters}, names

    def _driver(self, sql: str, values: Sequence[Any]) -> Any:
        """SQLite's cursor after that statement."""
        cursor: Any = self._connection.connection.cursor()
        return cursor.execute(sql, values)

    def _wholes(self, whole: Whole[T], statement: Select[Any], parameters: Values) -> tuple[T, ...]:
        """What a `select` of that whole table finds."""
        return tuple(map(whole.decoder(self._connection.dialect), self._raw(statement, parameters)))

    def _change(self, statement: Executable, parameters: Values | None = None) -> int:
        """Runs an insert, update or delete; how many rows it touched. None is no news."""
        count = self._change_quietly(statement, parameters)
        self.news = self.news or count > 0
        return count

    def _change_quietly(self, statement: Executable, parameters: Values | None = None) -> int:
        """The same for a change that nobody waits for."""
        # Without the option SQLAlchemy does not keep the count of an insert.
        result = self._connection.execute(statement, parameters, execution_options={"preserve_rowcount": True})
        assert isinstance(result, CursorResult)
        return max(result.rowcount, 0)

    def _insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An insert that knows `on_conflict_do_nothing`."""
        return postgresql.insert(table) if self._postgres else sqlite.insert(table)

    def wake(self, kind: Kind, id: str) -> None:
        """`ports.store.Leases.wake`: if the row has work left, it is due now, or stays due since earlier.

        `woken_at` tells whoever holds the lease, so that the `due_at` it writes at the end does not hide the wake.
        """
        self._change_raw(_wake_one(kind), {"key_": key_value(kind, id), "now_": micros(self.now())})

    def wake_by(self, kind: Kind, id: str, at: datetime) -> None:
        """`ports.store.Leases.wake_by`."""
        times = {"at_": micros(at), "now_": micros(self.now())}
        self._change_raw(_wake_by(kind), {"key_": key_value(kind, id), **times})

    def _give_back(self, lease: Lease, values: Values, *, due_at: datetime | None) -> bool:
        """Writes `values`, ends the lease and sets when to look again; False when the lease was lost.

        A wake since the claim wins over `due_at`, and a row in an end state is never due.
        """
        woken: datetime | None = min(due_at, self.now()) if due_at else self.now()
        if "state" in values and values["state"] not in _OPEN_STATES[lease.kind]:
            woken = due_at = None
        held = {"key_": key_value(lease.kind, lease.id), "token_": lease.token, "woken_": woken, "due_": due_at}
        is_news = bool(values) or due_at is None or due_at - self.now() < SOON
        change = self._change if is_news else self._change_quietly
        return change(_end_lease(lease.kind), {**held, **values}) > 0


def insisted(row: Row | None, what: str) -> Row:
    """The row, which the caller knows to be there.

    Raises: Bug.
    """
    if row is None:
        raise Bug(f"There is no {what}.")
    return row
