"""Who works on which row (engine.md R1, R6)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, exists, func, or_, select, update
from sqlalchemy.sql.elements import literal_column

from gpurun.adapters.store import tables
from gpurun.adapters.store.base import WORK, TransactionBase, is_open, key_of, key_value
from gpurun.domain.delivery import InboxState
from gpurun.ports.store import Kind, Lease


class LeaseRows(TransactionBase):
    """`ports.store.Leases`."""

    def claim(self, kind: Kind, *, limit: int, token: str, length: timedelta) -> tuple[Lease, ...]:
        table, key = WORK[kind], key_of(kind)
        due = (
            select(key.label("key"), table.c.tries)
            .where(table.c.due_at <= self.now(), _free(kind, self.now()), *_claimable(kind))
            .order_by(table.c.due_at, key)
            .limit(limit)
            .with_for_update(of=table, skip_locked=True)
        )
        rows = self._all(due)
        if rows:
            # Not news: the loop that claims is the loop that waits for news.
            self._change_quietly(
                update(table)
                .where(key.in_([row["key"] for row in rows]))
                .values(lease_token=token, lease_until=self.now() + length, woken_at=None)
            )
        return tuple(Lease(kind, str(row["key"]), token, row["tries"]) for row in rows)

    def renew(self, kind: Kind, ids: Sequence[str], token: str, *, length: timedelta) -> frozenset[str]:
        table, key = WORK[kind], key_of(kind)
        held = (
            update(table)
            .where(key.in_([key_value(kind, row_id) for row_id in ids]), table.c.lease_token == token)
            .values(lease_until=self.now() + length)
            .returning(key)
        )
        return frozenset(str(row_id) for row_id in self._connection.execute(held).scalars())

    def release(self, lease: Lease, *, due_at: datetime | None) -> bool:
        return self._give_back(lease, {}, due_at=due_at)

    def failed(self, lease: Lease, error: str, *, due_at: datetime | None) -> bool:
        return self._give_back(lease, {"tries": WORK[lease.kind].c.tries + 1, "last_error": error}, due_at=due_at)

    def wake(self, kind: Kind, id: str) -> None:
        self._wake_where(kind, key_of(kind) == key_value(kind, id))

    def next_due(self) -> datetime | None:
        """When a claim may find something next; a leased row counts from the end of its lease."""
        moments = [at for kind in Kind for at in (self._next_free(kind), self._next_expired(kind)) if at is not None]
        return min(moments, default=None)

    def void_leases(self) -> None:
        """Every lease ends. Only for whoever knows that its holder is dead."""
        for table in WORK.values():
            self._change(
                update(table).where(table.c.lease_token.is_not(None)).values(lease_token=None, lease_until=None)
            )

    def _next_free(self, kind: Kind) -> datetime | None:
        due = WORK[kind].c.due_at
        first = select(due).where(due.is_not(None), _free(kind, self.now()), *_claimable(kind)).order_by(due).limit(1)
        return self._connection.execute(first).scalar_one_or_none()

    def _next_expired(self, kind: Kind) -> datetime | None:
        table, now = WORK[kind], self.now()
        ends = select(func.min(table.c.lease_until)).where(
            table.c.due_at <= now, table.c.lease_until > now, is_open(kind)
        )
        return self._connection.execute(ends).scalar_one_or_none()


def _free(kind: Kind, now: datetime) -> ColumnElement[bool]:
    until = WORK[kind].c.lease_until
    return or_(until.is_(None), until <= now)


def _claimable(kind: Kind) -> tuple[ColumnElement[bool], ...]:
    """Work left, and for a delivery no earlier undone one of the same (repo, number)."""
    if kind is not Kind.INBOX:
        return (is_open(kind),)
    row, earlier = tables.inbox, tables.inbox.alias("earlier")
    blocked = exists(literal_column("1")).where(
        and_(
            earlier.c.repo == row.c.repo,
            earlier.c.number == row.c.number,
            earlier.c.id < row.c.id,
            earlier.c.state == InboxState.NEW,
        )
    )
    return (is_open(kind), ~blocked)
