"""Approvals of commits."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, select, update

from gpurun.adapters.store import tables
from gpurun.adapters.store.base import Row, TransactionBase, repo_of, repo_values
from gpurun.domain.approval import Approval, ApprovalEnd
from gpurun.domain.forge import RepoRef

_TABLE = tables.approval
_PLAIN = ("id", "pr", "sha", "max_usd_micro", "by", "at", "asked_at", "ended_at", "end", "ended_by")


class ApprovalTable(TransactionBase):
    """`ports.store.ApprovalRows`."""

    def approve(self, approval: Approval) -> None:
        before = self.hold_approval(approval.repo, approval.pr)
        if before is not None:
            self.end_approval(before.id, ApprovalEnd.REPLACED, approval.by)
        values = {name: getattr(approval, name) for name in _PLAIN}
        self._change_quietly(self._insert(_TABLE).values(values | repo_values(approval.repo)))

    def approval(self, repo: RepoRef, pr: int) -> Approval | None:
        row = self._one(_in_force(repo, pr))
        return None if row is None else _approval(row)

    def hold_approval(self, repo: RepoRef, pr: int) -> Approval | None:
        row = self._one(_in_force(repo, pr).with_for_update())
        return None if row is None else _approval(row)

    def end_approval(self, id: str, end: ApprovalEnd, by: str) -> bool:
        open_one = update(_TABLE).where(_TABLE.c.id == id, _TABLE.c.ended_at.is_(None))
        return self._change_quietly(open_one.values(ended_at=self.now(), end=end, ended_by=by)) > 0

    def approvals(self, repo: RepoRef, pr: int) -> tuple[Approval, ...]:
        return tuple(map(_approval, self._all(_of(repo, pr).order_by(_TABLE.c.at, _TABLE.c.id))))


def _of(repo: RepoRef, pr: int) -> Select[Any]:
    return select(_TABLE).where(_TABLE.c.repo_id == repo.id, _TABLE.c.pr == pr)


def _in_force(repo: RepoRef, pr: int) -> Select[Any]:
    return _of(repo, pr).where(_TABLE.c.ended_at.is_(None))


def _approval(row: Row) -> Approval:
    return Approval(repo=repo_of(row), **{name: row[name] for name in _PLAIN})
