"""Who works on which row (docs/concepts/engine.md, R1 and R6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    Update,
    and_,
    bindparam,
    exists,
    func,
    literal_column,
    or_,
    select,
    union_all,
    update,
)

from gpurun.adapters.store import tables
from gpurun.adapters.store.base import KEY, NOW, TOKEN, WORK, TransactionBase, is_open, key_of, key_value
from gpurun.adapters.store.codec import Moment, micros, moment
from gpurun.domain.delivery import InboxState
from gpurun.ports.store import Kind, Lease


class LeaseRows(TransactionBase):
    """`ports.store.Leases`."""

    def claim(self, kind: Kind, *, limit: int, token: str, length: timedelta) -> tuple[Lease, ...]:
        rows = self._all(_due(kind), {"now_": self.now(), "limit_": limit})
        if rows:
            taken = {"keys_": [row["key"] for row in rows], "token_": token, "until_": self.now() + length}
            # Not news: the loop that claims is the loop that waits for news.
            self._change_quietly(_take(kind), taken)
        return tuple(Lease(kind, str(row["key"]), token, row["tries"]) for row in rows)

    def keep(self, lease: Lease, *, length: timedelta) -> Lease | None:
        again = {
            "key_": key_value(lease.kind, lease.id),
            "now_": micros(self.now()),
            "token_": lease.token,
            "until_": micros(self.now() + length),
        }
        return next((replace(lease, tries=tries) for (tries,) in self._raw(_take_again(lease.kind), again)), None)

    def renew(self, kind: Kind, ids: Sequence[str], token: str, *, length: timedelta) -> frozenset[str]:
        held = {
            "keys_": [key_value(kind, row_id) for row_id in ids],
            "token_": token,
            "until_": self.now() + length,
        }
        return frozenset(map(str, self._connection.execute(_renew(kind), held).scalars()))

    def release(self, lease: Lease, *, due_at: datetime | None) -> bool:
        return self._give_back(lease, {}, due_at=due_at)

    def failed(self, lease: Lease, error: str, *, due_at: datetime | None) -> bool:
        table, key = WORK[lease.kind], key_of(lease.kind)
        ours = (key == key_value(lease.kind, lease.id), table.c.lease_token == lease.token)
        counted = self._change(update(table).where(*ours).values(tries=table.c.tries + 1, last_error=error))
        return counted > 0 and self._give_back(lease, {}, due_at=due_at)

    def due(self) -> Mapping[Kind, datetime]:
        found = self._raw(_next(), {"now_": micros(self.now())})
        return {Kind(kind): moment(at) for kind, at in found if at is not None}

    def next_due(self) -> datetime | None:
        return min(self.due().values(), default=None)

    def void_leases(self) -> None:
        """Every lease ends. Only for whoever knows that its holder is dead."""
        for table in WORK.values():
            leased = table.c.lease_token.is_not(None)
            self._change(update(table).where(leased).values(lease_token=None, lease_until=None))


_KEYS: BindParameter[Any] = bindparam("keys_", expanding=True)
_UNTIL = bindparam("until_", type_=Moment())


@cache
def _due(kind: Kind) -> Select[Any]:
    table, key = WORK[kind], key_of(kind)
    return (
        select(key.label("key"), table.c.tries)
        .where(table.c.due_at <= NOW, _free(kind), *_claimable(kind))
        .order_by(table.c.due_at, key)
        .limit(bindparam("limit_"))
        .with_for_update(of=table, skip_locked=True)
    )


@cache
def _take(kind: Kind) -> Update:
    taken = {"lease_token": TOKEN, "lease_until": _UNTIL, "woken_at": None}
    return update(WORK[kind]).where(key_of(kind).in_(_KEYS)).values(taken)


@cache
def _take_again(kind: Kind) -> Any:
    table, key = WORK[kind], key_of(kind)
    due = update(table).where(key == KEY, table.c.due_at <= NOW, _free(kind), is_open(kind))
    return due.values(lease_token=TOKEN, lease_until=_UNTIL, woken_at=None).returning(table.c.tries)


@cache
def _renew(kind: Kind) -> Any:
    table, key = WORK[kind], key_of(kind)
    held = update(table).where(key.in_(_KEYS), table.c.lease_token == TOKEN)
    return held.values(lease_until=_UNTIL).returning(key)


@cache
def _next() -> Select[Any]:
    """The minimum of each table, in one statement."""
    firsts = union_all(*(part for kind in Kind for part in (_next_free(kind), _next_expired(kind)))).subquery()
    return select(firsts.c.kind, func.min(firsts.c.at)).group_by(firsts.c.kind)


def _name(kind: Kind) -> ColumnElement[Any]:
    return literal_column(f"'{kind}'").label("kind")


def _next_free(kind: Kind) -> Select[Any]:
    due = WORK[kind].c.due_at
    first = select(due.label("at")).where(due.is_not(None), _free(kind), *_claimable(kind)).order_by(due).limit(1)
    return select(_name(kind), first.subquery().c.at)


def _next_expired(kind: Kind) -> Select[Any]:
    table = WORK[kind]
    leased = (table.c.due_at <= NOW, table.c.lease_until > NOW, is_open(kind))
    return select(_name(kind), func.min(table.c.lease_until).label("at")).where(*leased)


def _free(kind: Kind) -> ColumnElement[bool]:
    until = WORK[kind].c.lease_until
    return or_(until.is_(None), until <= NOW)


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
            earlier.c.state == literal_column(f"'{InboxState.NEW}'"),  # lets the partial index be used
        )
    )
    return (is_open(kind), ~blocked)
