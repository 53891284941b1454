"""What ends an approval, and what ends with it. Each function is a part of one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpurun.domain.approval import Approval, ApprovalEnd
from gpurun.domain.forge import PullRequest, RepoRef
from gpurun.domain.ids import CommitSha, RepoName
from gpurun.domain.run import AuditEntry, Run
from gpurun.flow.events import PullChanged
from gpurun.ports.store import Tx

_ALL_WAITING = frozenset({ApprovalEnd.CLOSED, ApprovalEnd.REBASED})
"""After these also what only waits has nothing to wait for: the request that people were shown is no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What became of a pull request."""

    repo: RepoRef
    pr: int
    end: ApprovalEnd
    head: CommitSha
    at: datetime | None = None
    """By the forge's clock. None: it is so now."""
    actor: str
    """For the audit log."""


def turn_of(event: PullChanged) -> Turn | None:
    """What a delivery says of it; None when it ends nothing."""
    if event.installation is None:
        return None
    ends = {
        "synchronize": ApprovalEnd.PUSHED,
        "closed": ApprovalEnd.CLOSED,
        "converted_to_draft": ApprovalEnd.DRAFTED,
    }
    end = ApprovalEnd.REBASED if event.other_base else ends.get(event.action)
    if end is None:
        return None
    name = RepoName(event.repository.full_name)
    return Turn(
        repo=RepoRef(installation_id=event.installation.id, name=name, id=event.repository.id),
        pr=event.pull_request.number,
        end=end,
        head=CommitSha(event.pull_request.head.sha),
        at=event.pull_request.updated_at,
        actor="github",
    )


def head_of(repo: RepoRef, pull_request: PullRequest) -> Turn:
    """What is so now: whoever was told of a push late, or never, finds it here."""
    end = ApprovalEnd.PUSHED if pull_request.open else ApprovalEnd.CLOSED
    return Turn(repo=repo, pr=pull_request.number, end=end, head=pull_request.head_sha, actor="github")


def take(tx: Tx, turn: Turn) -> None:
    """Ends the approval that does not hold any more, and the runs that stood on it or can never get one. A close ends
    every run of the pull request.

    A delivery may come late, or again: what happened before somebody asked is no reason to end what they were given.
    """
    approval = tx.hold_approval(turn.repo, turn.pr)
    if approval is not None and _ends(turn, approval):
        end(tx, approval, turn.end, by=turn.head if turn.end is ApprovalEnd.PUSHED else turn.actor, actor=turn.actor)
    for run in tx.live_runs(turn.repo, turn.pr):
        # what the repository answers for goes on after a push, and nobody needs it after a close
        if (run.untrusted is not None or turn.end is ApprovalEnd.CLOSED) and _is_over(turn, run):
            _cancel(tx, run, _words(turn.end, turn.head), turn.actor)


def end(tx: Tx, approval: Approval, why: ApprovalEnd, *, by: str, actor: str) -> None:
    """With everything that runs under it."""
    if not tx.end_approval(approval.id, why, by):
        return
    tx.raise_gate(approval.repo, approval.pr)
    data = {"approval": approval.id, "sha": approval.sha, "why": why.value, "by": by}
    subject = f"repo:{approval.repo.name}#{approval.pr}"
    tx.audit(AuditEntry(at=tx.now(), actor=actor, kind="approval_ended", subject=subject, data=data))
    for run in tx.live_runs(approval.repo, approval.pr):
        if run.untrusted is not None and run.approval:
            _cancel(tx, run, _words(why, by), actor)


def _ends(turn: Turn, approval: Approval) -> bool:
    if turn.at is not None and turn.at < approval.asked_at:
        return False
    return turn.end is not ApprovalEnd.PUSHED or turn.head != approval.sha


def _is_over(turn: Turn, run: Run) -> bool:
    if turn.at is not None and turn.at < run.created_at.replace(microsecond=0):  # GitHub tells whole seconds
        return False
    return turn.end in _ALL_WAITING or (turn.end is ApprovalEnd.PUSHED and turn.head != run.sha)


def _cancel(tx: Tx, run: Run, why: str, actor: str) -> None:
    if tx.ask_cancel(run.id, why):
        entry = AuditEntry(at=tx.now(), actor=actor, kind="run_cancel_asked", subject=f"run:{run.id}", data={"by": why})
        tx.audit(entry)
        tx.raise_rev(run.id, final=False, urgent=False)


def _words(why: ApprovalEnd, by: str) -> str:
    """Behind "cancelled by"."""
    match why:
        case ApprovalEnd.PUSHED:
            return f"a push: the head is {by[:12]} now"
        case ApprovalEnd.CLOSED:
            return "the end of the pull request"
        case ApprovalEnd.DRAFTED:
            return "the pull request's becoming a draft"
        case ApprovalEnd.REBASED:
            return "another base branch"
        case ApprovalEnd.REVOKED | ApprovalEnd.REPLACED:
            return f"{by}, who revoked the approval"
