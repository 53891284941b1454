"""The audit log: rows with their own hash, and the chain over them.

hash(row)  = sha256 of at, actor, kind, subject and data as they stand in the row, each with its length.
hash(seal) = sha256 of the position, the hash of the seal before, and the hash of the row.
`meta` holds the position and hash of the newest seal, so that a chain cut at its end is noticed too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, insert, select, text, update

from gpurun.adapters.store import tables
from gpurun.adapters.store.base import Row, TransactionBase, insisted
from gpurun.adapters.store.codec import canonical, micros, plain_text
from gpurun.domain.run import AuditEntry
from gpurun.ports.store import ChainReport

GENESIS = bytes(32)
"""What stands before the first seal."""

_ADD = insert(tables.audit)
_PAGE = 20_000
_WALK = (
    "SELECT s.position, s.previous, s.hash, a.at, a.actor, a.kind, a.subject, a.data, a.hash"
    " FROM audit_seal s LEFT JOIN audit a ON a.id = s.audit_id"
    " WHERE s.position > :after ORDER BY s.position LIMIT :page"
)


class AuditTable(TransactionBase):
    """`ports.store.AuditRows`."""

    def audit(self, entry: AuditEntry) -> None:
        values = {
            "actor": plain_text(entry.actor),
            "kind": plain_text(entry.kind),
            "subject": plain_text(entry.subject),
            "data": canonical(dict(entry.data)),
        }
        digest = _row_hash(micros(entry.at), *values.values())
        self._change(_ADD, {"at": entry.at, "hash": digest, "sealed": False, **values})

    def seal_audit(self, *, limit: int) -> int:
        log, meta = tables.audit, tables.meta
        head = insisted(self._one(select(meta.c.sealed, meta.c.seal_hash).with_for_update()), "meta row")
        fresh = select(log.c.id, log.c.hash).where(~log.c.sealed).order_by(log.c.id).limit(limit)
        rows = self._all(fresh)
        if not rows:
            return 0
        seals = _chain(rows, head["sealed"], head["seal_hash"])
        self._connection.execute(insert(tables.audit_seal), seals)
        self._connection.execute(update(log).where(log.c.id.in_([row["id"] for row in rows])).values(sealed=True))
        newest = seals[-1]
        self._connection.execute(update(meta).values(sealed=newest["position"], seal_hash=newest["hash"]))
        return len(rows)

    def audit_of(self, subject: str) -> tuple[AuditEntry, ...]:
        table = tables.audit
        rows = self._all(select(table).where(table.c.subject == subject).order_by(table.c.id))
        return tuple(
            AuditEntry(
                at=row["at"],
                actor=row["actor"],
                kind=row["kind"],
                subject=row["subject"],
                data=json.loads(row["data"]),
            )
            for row in rows
        )

    def verify_audit(self) -> ChainReport:
        """Walks the chain from its start; stops at the first position that does not fit."""
        log, meta = tables.audit, tables.meta
        head = self._one(select(meta.c.sealed, meta.c.seal_hash))
        newest = (head["sealed"], bytes(head["seal_hash"])) if head else (0, GENESIS)  # no process has opened it yet
        unsealed = self._connection.execute(select(func.count()).where(~log.c.sealed)).scalar_one()
        sealed_rows = self._connection.execute(select(func.count()).where(log.c.sealed)).scalar_one()
        position, previous = 0, GENESIS
        while page := self._page(position):
            for row in page:
                problem = _problem(row, position + 1, previous)
                if problem:
                    return ChainReport(position, unsealed, position + 1, problem)
                position, previous = row[0], row[2]
        if (position, previous) != newest:
            return ChainReport(position, unsealed, position + 1, "The chain ends before its newest seal.")
        if sealed_rows != position:
            return ChainReport(position, unsealed, position + 1, "A row says that it is sealed and has no seal.")
        return ChainReport(position, unsealed, None)

    def _page(self, after: int) -> Sequence[tuple[Any, ...]]:
        """The driver's own tuples: a million rows are walked."""
        result = self._connection.execute(text(_WALK), {"after": after, "page": _PAGE})
        assert result.cursor is not None
        page: Sequence[tuple[Any, ...]] = result.cursor.fetchall()
        result.close()
        return page


def _chain(rows: Sequence[Row], position: int, previous: bytes) -> list[dict[str, Any]]:
    seals = []
    for row in rows:
        position += 1
        digest = _seal_hash(position, previous, row["hash"])
        seals.append({"position": position, "audit_id": row["id"], "previous": previous, "hash": digest})
        previous = digest
    return seals


def _problem(row: Sequence[Any], position: int, previous: bytes) -> str:
    """What is wrong with the row of `_WALK` that should stand at `position`; empty when nothing is."""
    found, said_previous, seal, at, actor, kind, subject, data, row_hash = row
    if found != position:
        return "The seal is missing."
    if at is None:
        return "The row is missing."
    if _row_hash(at, actor, kind, subject, data) != row_hash:
        return "The row was changed."
    if said_previous != previous or _seal_hash(position, previous, row_hash) != seal:
        return "The row is not the one that was sealed here."
    return ""


def _row_hash(at: int, actor: str, kind: str, subject: str, data: str) -> bytes:
    content = f"{at}:{len(actor)}:{actor}{len(kind)}:{kind}{len(subject)}:{subject}{len(data)}:{data}"
    return hashlib.sha256(content.encode()).digest()


def _seal_hash(position: int, previous: bytes, row_hash: bytes) -> bytes:
    return hashlib.sha256(position.to_bytes(8, "big") + previous + row_hash).digest()
