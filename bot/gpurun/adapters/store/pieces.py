"""Appends of agents: the hot path of a thousand live runs, many in one commit, by the driver without Core."""

from __future__ import annotations

import hmac
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpurun.adapters.store.base import TransactionBase
from gpurun.adapters.store.codec import micros, moment
from gpurun.adapters.store.streams import MAX_CHUNK
from gpurun.domain.errors import Revoked, UnknownToken
from gpurun.domain.run import AGENT_IS_OVER
from gpurun.domain.stream import Piece, StreamEnd, Taken

SEEN_EVERY = timedelta(seconds=5)
"""Last contact is kept to so much, so that not every append writes the attempt's row. Its timers count in minutes."""

_AGENT = """
SELECT token_sha256, state, result IS NOT NULL OR claim_revoked_at IS NOT NULL, stop_asked_at IS NOT NULL,
       hard_deadline, last_seen_at
FROM attempt WHERE id = ?
"""
_SAW = "UPDATE attempt SET last_seen_at = ? WHERE id = ?"
_BEGIN = "INSERT INTO stream (attempt_id, name, next) VALUES (?, ?, 0) ON CONFLICT DO NOTHING"
_MOVE = "UPDATE stream SET next = ? WHERE attempt_id = ? AND name = ? AND next = ?"
_END = "SELECT next FROM stream WHERE attempt_id = ? AND name = ?"
_ADD = 'INSERT INTO chunk (attempt_id, name, "offset", data) VALUES (?, ?, ?, ?)'
_SEEN_EVERY = SEEN_EVERY // timedelta(microseconds=1)

Execute = Callable[[str, tuple[Any, ...]], Any]
Outcome = Taken | UnknownToken | Revoked


def append_on_sqlite(connection: sqlite3.Connection, pieces: Sequence[Piece], at: datetime) -> list[Outcome]:
    """One transaction of its own; like `PieceRows.append_pieces`, without what SQLAlchemy costs, on the hot path."""
    cursor, now = connection.cursor(), micros(at)
    try:
        cursor.execute("BEGIN IMMEDIATE")
        outcomes = [_append(cursor.execute, piece, now) for piece in pieces]
        cursor.execute("COMMIT")
        return outcomes
    finally:
        cursor.close()
        if connection.in_transaction:
            connection.rollback()


class PieceRows(TransactionBase):
    """The transaction behind `ports.store.Store.append`."""

    def append_pieces(self, pieces: Sequence[Piece]) -> list[Outcome]:
        """One outcome each, in order. PostgreSQL; SQLite has `append_on_sqlite`."""
        now = micros(self.now())

        def execute(sql: str, values: tuple[Any, ...]) -> Any:
            return self._connection.exec_driver_sql(sql.replace("?", "%s"), values)

        return [_append(execute, piece, now) for piece in pieces]


def _append(execute: Execute, piece: Piece, now: int) -> Outcome:
    row = execute(_AGENT, (piece.attempt_id,)).fetchone()
    if row is None or not row[0] or not hmac.compare_digest(row[0], piece.token_sha256):
        return UnknownToken("This token opens nothing here.")
    _, state, is_over, stop, deadline, seen = row
    if is_over or state in AGENT_IS_OVER:
        return Revoked("The attempt is over.")
    if seen is None or now - seen >= _SEEN_EVERY:
        execute(_SAW, (now, piece.attempt_id))
    took = _move(execute, piece)
    next_offset = piece.offset + len(piece.data) if took else _end(execute, piece)
    end = StreamEnd(next=next_offset, durable=next_offset)
    return Taken(took=took, end=end, stop=bool(stop), hard_deadline=moment(deadline))


def _move(execute: Execute, piece: Piece) -> bool:
    """Compare and set of the stream's end, and the bytes."""
    key = (piece.attempt_id, piece.name.value)
    if piece.offset == 0:
        execute(_BEGIN, key)
    if execute(_MOVE, (piece.offset + len(piece.data), *key, piece.offset)).rowcount != 1:
        return False
    for at in range(0, len(piece.data), MAX_CHUNK):
        execute(_ADD, (*key, piece.offset + at, piece.data[at : at + MAX_CHUNK]))
    return True


def _end(execute: Execute, piece: Piece) -> int:
    row = execute(_END, (piece.attempt_id, piece.name.value)).fetchone()
    return 0 if row is None else int(row[0])
