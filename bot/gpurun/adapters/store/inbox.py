"""Deliveries and the commands they carry."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from sqlalchemy import select

from gpurun.adapters.store import tables
from gpurun.adapters.store.base import TransactionBase, insisted
from gpurun.adapters.store.codec import micros, plain_text
from gpurun.domain.delivery import Delivery, InboxRow, InboxState
from gpurun.ports.store import Lease

_INSERT = """
INSERT INTO inbox (guid, event, action, installation_id, repo, number, body, received_at, due_at,
                   state, note, tries, last_error)
"""
_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, 'new', '', 0, '')"
_ONCE = " ON CONFLICT (guid) DO NOTHING"
_TOGETHER: Mapping[int, str] = {n: f"{_INSERT}VALUES {', '.join([_VALUES] * n)}{_ONCE}" for n in (32, 16, 8, 4, 2, 1)}
"""One statement for so many rows: each statement lets go of the interpreter and has to get it back."""
_MANY = (
    _INSERT
    + """
SELECT r.*, 'new', '', 0, ''
FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::bigint[], %b::bytea[], %s::bigint[],
            %s::bigint[]) AS r
ON CONFLICT (guid) DO NOTHING
RETURNING guid
"""
)


def accept_on_sqlite(connection: sqlite3.Connection, deliveries: Sequence[Delivery], due_at: datetime) -> list[bool]:
    """One transaction of its own; like `InboxTable.accept`, without what SQLAlchemy costs, on the hot path."""
    rows = [_values(delivery, micros(due_at)) for delivery in deliveries]
    cursor = connection.cursor()
    try:
        cursor.execute("BEGIN IMMEDIATE")
        if _insert_together(cursor, rows) == len(rows):
            fresh = [True] * len(rows)
        else:  # which of them were there: rare enough to do it again
            cursor.execute("ROLLBACK")
            cursor.execute("BEGIN IMMEDIATE")
            fresh = _insert_one_by_one(cursor, rows)
        cursor.execute("COMMIT")
        return fresh
    finally:
        cursor.close()
        if connection.in_transaction:
            connection.rollback()


class InboxTable(TransactionBase):
    """`ports.store.InboxRows`."""

    def accept(self, deliveries: Sequence[Delivery]) -> list[bool]:
        """One row each, in order; False where the GUID was there already. PostgreSQL; SQLite has `accept_on_sqlite`."""
        now = micros(self.now())
        rows = [_values(delivery, now) for delivery in deliveries]
        columns = tuple(list(column) for column in zip(*rows, strict=True))
        made = set(self._connection.exec_driver_sql(_MANY, columns).scalars())
        fresh = []
        for row in rows:
            fresh.append(row[0] in made)
            made.discard(row[0])
        self.news = self.news or any(fresh)
        return fresh

    def inbox(self, id: str) -> InboxRow:
        table = tables.inbox
        row = insisted(self._one(select(table).where(table.c.id == int(id))), f"inbox row {id}")
        delivery = Delivery(
            guid=row["guid"],
            event=row["event"],
            action=row["action"],
            installation_id=row["installation_id"],
            repo=row["repo"],
            number=row["number"],
            body=row["body"],
            received_at=row["received_at"],
        )
        return InboxRow(
            id=row["id"],
            delivery=delivery,
            state=row["state"],
            tries=row["tries"],
            note=row["note"],
            slot_at=row["slot_at"],
        )

    def settle_inbox(self, lease: Lease, state: InboxState, note: str) -> bool:
        return self._give_back(lease, {"state": state, "note": note}, due_at=None)

    def postpone_inbox(self, lease: Lease, until: datetime, *, slot_at: datetime | None) -> bool:
        return self._give_back(lease, {"slot_at": slot_at}, due_at=until)

    def take_command(self, repo: str, comment_id: int, index: int, inbox_id: str) -> bool:
        table = tables.command_row
        key = {"repo": repo, "comment_id": comment_id, "index": index}
        self._change(self._insert(table).values(inbox_id=inbox_id, **key).on_conflict_do_nothing())
        owner = select(table.c.inbox_id).filter_by(**key)
        return bool(self._connection.execute(owner).scalar_one() == inbox_id)

    def take_press(self, check_id: int, action: str, sender: str, second: int, inbox_id: str) -> bool:
        table = tables.press
        key = {"check_id": check_id, "action": action, "sender": sender, "second": second}
        self._change(self._insert(table).values(inbox_id=inbox_id, **key).on_conflict_do_nothing())
        owner = select(table.c.inbox_id).filter_by(**key)
        return bool(self._connection.execute(owner).scalar_one() == inbox_id)


def _insert_together(cursor: Any, rows: Sequence[tuple[Any, ...]]) -> int:
    """How many of them are new."""
    made = at = 0
    for size, statement in _TOGETHER.items():
        while len(rows) - at >= size:
            cursor.execute(statement, tuple(chain.from_iterable(rows[at : at + size])))
            made += cursor.rowcount
            at += size
    return made


def _insert_one_by_one(cursor: Any, rows: Sequence[tuple[Any, ...]]) -> list[bool]:
    fresh = []
    for row in rows:
        cursor.execute(_TOGETHER[1], row)
        fresh.append(cursor.rowcount == 1)
    return fresh


def _values(delivery: Delivery, due_at: int) -> tuple[Any, ...]:
    return (
        plain_text(delivery.guid),
        plain_text(delivery.event),
        plain_text(delivery.action),
        delivery.installation_id,
        plain_text(delivery.repo),
        delivery.number,
        delivery.body,
        micros(delivery.received_at),
        due_at,
    )
