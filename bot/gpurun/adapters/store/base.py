"""What every group of a transaction shares: the connection, the time, and how statements are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Executable,
    RowMapping,
    Select,
    Table,
    case,
    literal,
    or_,
    text,
    true,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from gpurun.adapters.store import tables
from gpurun.adapters.store.codec import Moment, moment
from gpurun.domain.delivery import InboxState
from gpurun.domain.errors import Bug
from gpurun.domain.publication import PublicationState
from gpurun.domain.run import AttemptState, RunState, StrayState
from gpurun.ports.clock import Clock
from gpurun.ports.store import Kind, Lease

Values = Mapping[str, Any]
"""Columns and what to write there."""

Row = RowMapping
"""A row by column name."""

WORK: Mapping[Kind, Table] = {
    Kind.INBOX: tables.inbox,
    Kind.RUN: tables.run,
    Kind.ATTEMPT: tables.attempt,
    Kind.PROVIDER_ACCOUNT: tables.provider_account,
    Kind.STRAY: tables.stray,
    Kind.PUBLICATION: tables.publication,
}

_OPEN_STATES: Mapping[Kind, tuple[str, ...]] = {
    Kind.INBOX: (InboxState.NEW,),
    Kind.RUN: tuple(state for state in RunState if state is not RunState.ENDED),
    Kind.ATTEMPT: tuple(state for state in AttemptState if state not in {AttemptState.GONE, AttemptState.VOID}),
    Kind.STRAY: (StrayState.SEEN, StrayState.DESTROYING),
    Kind.PUBLICATION: tuple(state for state in PublicationState if state is not PublicationState.DEAD),
}
"""States with work left. A state that this version does not know is in none of them, so its row is left alone."""


def key_of(kind: Kind) -> Column[Any]:
    """The primary key."""
    (key,) = WORK[kind].primary_key.columns
    return key


def key_value(kind: Kind, id: str) -> str | int:
    """As the column holds it."""
    return int(id) if kind is Kind.INBOX else id


def is_open(kind: Kind) -> ColumnElement[bool]:
    """The row has work left."""
    if kind not in _OPEN_STATES:
        return true()
    return WORK[kind].c.state.in_(_OPEN_STATES[kind])


def earlier(column: ColumnElement[Any], at: datetime) -> ColumnElement[Any]:
    """`at`, or what the column holds when that is sooner."""
    return case((or_(column.is_(None), column > at), time_literal(at)), else_=column)


def time_literal(at: datetime | None) -> ColumnElement[Any]:
    """For places where SQLAlchemy cannot see that the value goes to a time column."""
    return literal(at, Moment())


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

    def _one(self, statement: Select[Any]) -> Row | None:
        return self._connection.execute(statement).mappings().one_or_none()

    def _all(self, statement: Select[Any]) -> Sequence[Row]:
        return self._connection.execute(statement).mappings().all()

    def _change(self, statement: Executable) -> int:
        """Runs an insert, update or delete; how many rows it touched. None is no news."""
        count = self._change_quietly(statement)
        self.news = self.news or count > 0
        return count

    def _change_quietly(self, statement: Executable) -> int:
        """The same for a change that nobody waits for."""
        # Without the option SQLAlchemy does not keep the count of an insert.
        result = self._connection.execute(statement, execution_options={"preserve_rowcount": True})
        assert isinstance(result, CursorResult)
        return max(result.rowcount, 0)

    def _insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An insert that knows `on_conflict_do_nothing`."""
        return postgresql.insert(table) if self._postgres else sqlite.insert(table)

    def _wake_where(self, kind: Kind, *conditions: ColumnElement[bool]) -> int:
        """Those rows, if they have work left, are due now or stay due since earlier.

        `woken_at` tells whoever holds the lease, so that the `due_at` it writes at the end does not hide the wake.
        """
        table = WORK[kind]
        values = {"due_at": earlier(table.c.due_at, self.now()), "woken_at": self.now()}
        return self._change(update(table).where(is_open(kind), *conditions).values(values))

    def _give_back(self, lease: Lease, values: Values, *, due_at: datetime | None) -> bool:
        """Writes `values`, ends the lease and sets when to look again; False when the lease was lost.

        A wake since the claim wins over `due_at`, and a row in an end state is never due.
        """
        table = WORK[lease.kind]
        woken = min(due_at, self.now()) if due_at else self.now()
        due: Any = case((table.c.woken_at.is_not(None), time_literal(woken)), else_=time_literal(due_at))
        if "state" in values and values["state"] not in _OPEN_STATES[lease.kind]:
            due = None
        changed = self._change(
            update(table)
            .where(key_of(lease.kind) == key_value(lease.kind, lease.id), table.c.lease_token == lease.token)
            .values({**values, "due_at": due, "woken_at": None, "lease_token": None, "lease_until": None})
        )
        return changed > 0


def insisted(row: Row | None, what: str) -> Row:
    """The row, which the caller knows to be there.

    Raises: Bug.
    """
    if row is None:
        raise Bug(f"There is no {what}.")
    return row
