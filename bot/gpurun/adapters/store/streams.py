"""Streams and artifacts of attempts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, func, insert, not_, select, update

from gpurun.adapters.store import tables
from gpurun.adapters.store.base import TransactionBase
from gpurun.domain.errors import WrongOffset
from gpurun.domain.run import AttemptState, Phase
from gpurun.domain.stream import Artifact, StreamEnd, StreamName

MAX_CHUNK = 64 * 1024
"""Bytes of one row."""

_MINE = (tables.stream.c.attempt_id == bindparam("id_"), tables.stream.c.name == bindparam("name_"))
_END = select(tables.stream.c.next).where(*_MINE)
_MOVE = update(tables.stream).where(*_MINE, tables.stream.c.next == bindparam("offset_"))
_ADD = insert(tables.chunk)
_OF_STREAM = (tables.chunk.c.attempt_id == bindparam("id_"), tables.chunk.c.name == bindparam("name_"))
_CHUNK_AT = (
    select(tables.chunk.c.offset)
    .where(*_OF_STREAM, tables.chunk.c.offset <= bindparam("from_"))
    .order_by(tables.chunk.c.offset.desc())
    .limit(1)
)
_DATA = (
    select(tables.chunk.c.data)
    .where(*_OF_STREAM, tables.chunk.c.offset >= bindparam("from_"), tables.chunk.c.offset < bindparam("to_"))
    .order_by(tables.chunk.c.offset)
)


class StreamTable(TransactionBase):
    """`ports.store.StreamRows`. A commit is durable, so `durable` is always `next`."""

    def stream_end(self, attempt_id: str, name: StreamName) -> StreamEnd:
        end = next((next_ for (next_,) in self._raw(_END, {"id_": attempt_id, "name_": StreamName(name).value})), 0)
        return StreamEnd(next=end, durable=end)

    def append(self, attempt_id: str, name: StreamName, offset: int, data: bytes) -> StreamEnd:
        self._advance(attempt_id, name, offset, len(data))
        rows = [
            {"attempt_id": attempt_id, "name": name, "offset": offset + at, "data": data[at : at + MAX_CHUNK]}
            for at in range(0, len(data), MAX_CHUNK)
        ]
        if rows:
            self._connection.execute(_ADD, rows)
        end = offset + len(data)
        return StreamEnd(next=end, durable=end)

    def read_stream(self, attempt_id: str, name: StreamName, *, offset: int, max_bytes: int) -> bytes:
        place = {"id_": attempt_id, "name_": StreamName(name).value, "from_": offset}
        first = next((at for (at,) in self._raw(_CHUNK_AT, place)), None)
        if first is None or max_bytes <= 0:
            return b""
        place |= {"from_": first, "to_": offset + max_bytes}
        data = b"".join(piece for (piece,) in self._raw(_DATA, place))
        return data[offset - first : offset - first + max_bytes]

    def log_size(self, attempt_id: str) -> int:
        return sum(self.stream_end(attempt_id, name).next for name in (StreamName.BUILD, StreamName.LOG))

    def read_log(self, attempt_id: str, *, offset: int, max_bytes: int) -> bytes:
        built = self.stream_end(attempt_id, StreamName.BUILD).next
        if offset >= built:
            return self.read_stream(attempt_id, StreamName.LOG, offset=offset - built, max_bytes=max_bytes)
        said = self.read_stream(attempt_id, StreamName.BUILD, offset=offset, max_bytes=max_bytes)
        return said + self.read_stream(attempt_id, StreamName.LOG, offset=0, max_bytes=max_bytes - len(said))

    def add_artifact(self, attempt_id: str, artifact: Artifact) -> None:
        table = tables.artifact
        values: dict[str, Any] = {"size": artifact.size, "sha256": artifact.sha256, "blob": artifact.blob}
        added = self._insert(table).values(attempt_id=attempt_id, path=artifact.path, **values)
        self._change(added.on_conflict_do_update(index_elements=["attempt_id", "path"], set_=values))

    def artifacts(self, attempt_id: str) -> tuple[Artifact, ...]:
        table = tables.artifact
        columns = (table.c.path, table.c.size, table.c.sha256, table.c.blob)
        rows = self._all(select(*columns).where(table.c.attempt_id == attempt_id).order_by(table.c.path))
        return tuple(Artifact(**row) for row in rows)

    def old_artifacts(self, *, ended_before: datetime, limit: int) -> tuple[tuple[str, Artifact], ...]:
        table, attempt = tables.artifact, tables.attempt
        ended = _ended(before=ended_before)
        of = table.join(attempt, attempt.c.id == table.c.attempt_id)
        columns = (table.c.attempt_id, table.c.path, table.c.size, table.c.sha256, table.c.blob)
        order = (table.c.attempt_id, table.c.path)
        found = select(*columns).select_from(of).where(table.c.blob != "", ended).order_by(*order).limit(limit)
        return tuple((row.pop("attempt_id"), Artifact(**row)) for row in map(dict, self._all(found)))

    def left_nothing(self, *, ended_after: datetime, ended_before: datetime) -> tuple[str, ...]:
        table, artifact = tables.attempt, tables.artifact
        left = select(artifact.c.path).where(artifact.c.attempt_id == table.c.id).exists()
        ended = and_(_ended(before=ended_before), not_(_ended(before=ended_after)))
        sent = table.c.phase.in_((Phase.COLLECTING, Phase.FINISHED))
        found = select(table.c.id).where(ended, sent, not_(left)).order_by(table.c.id)
        return tuple(row["id"] for row in self._all(found))

    def drop_bytes(self, attempt_id: str, path: str) -> None:
        table = tables.artifact
        this = (table.c.attempt_id == attempt_id, table.c.path == path)
        self._change_quietly(update(table).where(*this).values(blob=""))

    def _advance(self, attempt_id: str, name: StreamName, offset: int, length: int) -> None:
        """Compare and set of the end. Not news: who follows a stream asks for it.

        Raises: WrongOffset.
        """
        if offset == 0:
            first = self._insert(tables.stream).values(attempt_id=attempt_id, name=name, next=0)
            self._change_quietly(first.on_conflict_do_nothing())
        move = {"id_": attempt_id, "name_": name, "offset_": offset, "next": offset + length}
        if not self._change_quietly(_MOVE, move):
            raise WrongOffset(self.stream_end(attempt_id, name).next)


def _ended(*, before: datetime) -> ColumnElement[bool]:
    """Attempts whose instance went before that."""
    attempt = tables.attempt.c
    ended_at = func.coalesce(attempt.gone_at, attempt.state_since)
    return and_(attempt.state.in_((AttemptState.GONE, AttemptState.VOID)), ended_at < before)
