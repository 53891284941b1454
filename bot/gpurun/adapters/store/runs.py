"""Runs."""

from __future__ import annotations

from sqlalchemy import and_, bindparam, func, or_, select, update

from gpurun.adapters.store import tables
from gpurun.adapters.store.base import Row, TransactionBase, Whole, repo_of, repo_values
from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import CommitSha
from gpurun.domain.publication import PublicationKind
from gpurun.domain.run import Run, RunState
from gpurun.ports.store import Kind, Lease

_IDENTITY = (
    "id", "pr", "job", "sha", "base_sha", "who", "why", "comment_id", "created_at", "read_key", "config_text", "folder",
    "policy_text", "base_ref", "untrusted", "narrow",
)  # fmt: skip
_ENGINE_OWNED = (
    "state", "state_since", "tries", "last_error", "pins", "plan", "plan_digest", "result_key", "attempts",
    "verdict", "reason", "detail", "error_line", "faults", "notes", "max_attempts", "ended_at",
    "quote", "approval",
)  # fmt: skip
_INTENTS = ("also_asked", "cancel_at", "cancel_by", "superseded_by", "paused")
_PLAIN = (*_IDENTITY, *_ENGINE_OWNED, *_INTENTS, "due_at")

_BY_ID = select(tables.run).where(tables.run.c.id == bindparam("id_"))


class RunTable(TransactionBase):
    """`ports.store.RunRows`."""

    def add_run(self, run: Run) -> None:
        values = {name: getattr(run, name) for name in _PLAIN}
        self._change(self._insert(tables.run).values(values | repo_values(run.repo)))

    def run(self, id: str) -> Run | None:
        return next(iter(self._wholes(_RUNS, _BY_ID, {"id_": id})), None)

    def save_run(self, run: Run, lease: Lease) -> bool:
        return self._give_back(lease, {name: getattr(run, name) for name in _ENGINE_OWNED}, due_at=run.due_at)

    def live_runs(self, repo: RepoRef, pr: int) -> tuple[Run, ...]:
        table = tables.run
        live = select(table).where(table.c.repo_id == repo.id, table.c.pr == pr, table.c.state != RunState.ENDED)
        return tuple(map(_run, self._all(live.order_by(table.c.created_at, table.c.id))))

    def runs_of_commit(self, repo_name: str, sha: str) -> tuple[Run, ...]:
        table = tables.run
        same = select(table).where(table.c.repo_name == repo_name, table.c.sha == sha)
        return tuple(map(_run, self._all(same.order_by(table.c.created_at, table.c.id))))

    def runs_of_pull(self, repo: RepoRef, pr: int, sha: CommitSha) -> tuple[Run, ...]:
        table = tables.run
        same = select(table).where(table.c.repo_name == repo.name, table.c.sha == sha)  # of the index
        mine = same.where(table.c.repo_id == repo.id, table.c.pr == pr)
        return tuple(map(_run, self._all(mine.order_by(table.c.created_at, table.c.id))))

    def live_runs_of_repo(self, repo: RepoRef) -> tuple[Run, ...]:
        table = tables.run
        live = select(table).where(table.c.repo_id == repo.id, table.c.state != RunState.ENDED)
        return tuple(map(_run, self._all(live.order_by(table.c.created_at, table.c.id))))

    def newest_runs(self, repo: RepoRef, pr: int) -> tuple[Run, ...]:
        table, comment = tables.run, tables.publication  # the comment of a job shows its newest run
        shown = select(comment.c.run_id).where(
            comment.c.repo_id == repo.id, comment.c.pr == pr, comment.c.kind == PublicationKind.COMMENT
        )
        newest = select(table).where(table.c.id.in_(shown)).order_by(table.c.created_at, table.c.id)
        return tuple(map(_run, self._all(newest)))

    def waiting_before(self, run: Run) -> int:
        table = tables.run
        alike = (table.c.state == RunState.QUEUED, table.c.reason == run.reason, table.c.detail == run.detail)
        earlier = or_(
            table.c.created_at < run.created_at, and_(table.c.created_at == run.created_at, table.c.id < run.id)
        )
        live = table.c.state != RunState.ENDED  # of the index
        return int(self._connection.execute(select(func.count()).where(live, *alike, earlier)).scalar_one())

    def hold_runs(self, repo: RepoRef) -> tuple[str, ...]:
        return self._set_paused(repo, paused=True)

    def free_runs(self, repo: RepoRef) -> tuple[str, ...]:
        return self._set_paused(repo, paused=False)

    def _set_paused(self, repo: RepoRef, *, paused: bool) -> tuple[str, ...]:
        table = tables.run
        others = (table.c.repo_id == repo.id, table.c.state != RunState.ENDED, table.c.paused.is_(not paused))
        found = self._connection.execute(select(table.c.id).where(*others).order_by(table.c.created_at, table.c.id))
        ids = tuple(found.scalars())
        self._change(update(table).where(table.c.id.in_(ids)).values(paused=paused))
        for run_id in ids:
            self.wake(Kind.RUN, run_id)
        return ids

    def latest_runs(self, *, limit: int) -> tuple[Run, ...]:
        table = tables.run
        newest = select(table).order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit)
        return tuple(map(_run, self._all(newest)))

    def ask_cancel(self, run_id: str, who: str) -> bool:
        table = tables.run
        asked = self._change(
            update(table)
            .where(table.c.id == run_id, table.c.cancel_at.is_(None), table.c.state != RunState.ENDED)
            .values(cancel_at=self.now(), cancel_by=who)
        )
        if asked:
            attempts = select(tables.attempt.c.id).where(tables.attempt.c.run_id == run_id)
            self.wake(Kind.RUN, run_id)
            for attempt_id in self._connection.execute(attempts).scalars():
                self.wake(Kind.ATTEMPT, attempt_id)
        return asked > 0

    def also_asked(self, run_id: str, who: str) -> None:
        table = tables.run
        row = self._one(select(table.c.also_asked).where(table.c.id == run_id).with_for_update())
        if row is not None and who not in row["also_asked"]:
            self._change(update(table).where(table.c.id == run_id).values(also_asked=(*row["also_asked"], who)))


def _run(row: Row) -> Run:
    return Run(repo=repo_of(row), **{name: row[name] for name in _PLAIN})


_RUNS = Whole(tables.run, _run)
