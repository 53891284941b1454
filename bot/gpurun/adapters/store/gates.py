"""Gates, overrides and pauses."""

from __future__ import annotations

from sqlalchemy import Table, select, update

from gpurun.adapters.store import tables
from gpurun.adapters.store.base import Row, TransactionBase, Values, repo_of, repo_values
from gpurun.domain.forge import RepoRef
from gpurun.domain.gate import Gate, GateState, Override, Pause
from gpurun.domain.ids import CommitSha
from gpurun.ports.store import Kind, Lease

_GATE_OWNED = ("state", "tries", "last_error", "look", "looked_at")
_GATE = ("id", "pr", "sha", "base_ref", "created_at", "due_at", *_GATE_OWNED)
_OVERRIDE = ("id", "pr", "sha", "job", "folder", "reason", "by", "at", "ended_at", "ended_by")
_PAUSE = ("id", "reason", "by", "at", "ended_at", "ended_by")


class GateTable(TransactionBase):
    """`ports.store.GateRows`."""

    def open_gate(self, gate: Gate) -> None:
        fresh = self._insert(tables.gate).values(_values(gate, _GATE))
        again = {"state": GateState.OPEN, "base_ref": gate.base_ref, "repo_name": gate.repo.name}
        self._change(fresh.on_conflict_do_update(index_elements=["repo_id", "pr", "sha"], set_=again))
        table = tables.gate
        same = select(table.c.id).where(table.c.repo_id == gate.repo.id, table.c.pr == gate.pr, table.c.sha == gate.sha)
        self.wake(Kind.GATE, self._connection.execute(same).scalar_one())

    def gate(self, id: str) -> Gate | None:
        row = self._one(select(tables.gate).where(tables.gate.c.id == id))
        return None if row is None else _gate(row)

    def gates(self, repo: RepoRef, pr: int) -> tuple[Gate, ...]:
        table = tables.gate
        mine = select(table).where(table.c.repo_id == repo.id, table.c.pr == pr, table.c.state == GateState.OPEN)
        return tuple(map(_gate, self._all(mine.order_by(table.c.created_at, table.c.id))))

    def gates_of_commit(self, repo: RepoRef, sha: CommitSha, *, limit: int) -> tuple[Gate, ...]:
        table = tables.gate
        same = select(table).where(table.c.repo_id == repo.id, table.c.sha == sha, table.c.state == GateState.OPEN)
        return tuple(map(_gate, self._all(same.order_by(table.c.created_at, table.c.id).limit(limit))))

    def save_gate(self, gate: Gate, lease: Lease) -> bool:
        return self._give_back(lease, {name: getattr(gate, name) for name in _GATE_OWNED}, due_at=gate.due_at)

    def end_gate(self, id: str) -> None:
        table = tables.gate
        self._change(update(table).where(table.c.id == id).values(state=GateState.OVER, due_at=None))

    def override(self, override: Override) -> None:
        for before in self.overrides(override.repo, override.pr, override.sha):
            if (before.job, before.folder) == (override.job, override.folder):
                self.end_override(before.id, override.by)
        self._change_quietly(self._insert(tables.override).values(_values(override, _OVERRIDE)))

    def overrides(self, repo: RepoRef, pr: int, sha: CommitSha) -> tuple[Override, ...]:
        table = tables.override
        mine = select(table).where(table.c.repo_id == repo.id, table.c.pr == pr, table.c.sha == sha)
        held = mine.where(table.c.ended_at.is_(None)).order_by(table.c.at, table.c.id)
        return tuple(Override(repo=repo_of(row), **{name: row[name] for name in _OVERRIDE}) for row in self._all(held))

    def end_override(self, id: str, by: str) -> bool:
        return self._end(tables.override, id, by)

    def pause(self, pause: Pause) -> None:
        before = self.pause_of(pause.repo)
        if before is not None:
            self.end_pause(before.id, pause.by)
        self._change_quietly(self._insert(tables.pause).values(_values(pause, _PAUSE)))

    def pause_of(self, repo: RepoRef) -> Pause | None:
        table = tables.pause
        row = self._one(select(table).where(table.c.repo_id == repo.id, table.c.ended_at.is_(None)))
        return None if row is None else Pause(repo=repo_of(row), **{name: row[name] for name in _PAUSE})

    def end_pause(self, id: str, by: str) -> bool:
        return self._end(tables.pause, id, by)

    def _end(self, table: Table, id: str, by: str) -> bool:
        held = update(table).where(table.c.id == id, table.c.ended_at.is_(None))
        return self._change_quietly(held.values(ended_at=self.now(), ended_by=by)) > 0


def _values(row: Gate | Override | Pause, names: tuple[str, ...]) -> Values:
    return {name: getattr(row, name) for name in names} | repo_values(row.repo)


def _gate(row: Row) -> Gate:
    return Gate(repo=repo_of(row), **{name: row[name] for name in _GATE})
