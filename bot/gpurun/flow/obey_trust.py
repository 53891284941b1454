"""Commands of those who answer for code: `approve`, `revoke`, `override`. Each function is a part of one
transaction.
"""

from __future__ import annotations

from dataclasses import replace

from gpurun.command.grammar import render
from gpurun.command.parse import suggest
from gpurun.domain.approval import Approval, ApprovalEnd
from gpurun.domain.command import Answering, Approve, CancelOverride, OverrideJob, Revoke
from gpurun.domain.gate import Needed, Override
from gpurun.domain.ids import JobName
from gpurun.domain.run import RunState
from gpurun.flow import approvals
from gpurun.flow.acting import Acting
from gpurun.ports.store import Kind, Tx
from gpurun.report import reply

_BEFORE_A_WORD = frozenset({RunState.PLANNING, RunState.WAITING_APPROVAL})


def obey(tx: Tx, acting: Acting, command: Answering) -> list[str]:
    """What has to be said."""
    match command:
        case Approve():
            return approve(tx, acting, command)
        case Revoke():
            return revoke(tx, acting, command)
        case OverrideJob():
            return override(tx, acting, command)
        case CancelOverride():
            return cancel_override(tx, acting, command)


def approve(tx: Tx, acting: Acting, command: Approve) -> list[str]:
    """Of exactly the head. What waits for it goes on, and says so itself."""
    seen, pull_request = acting.seen, acting.seen.pull_request
    denied = acting.denied(command)
    if denied:
        acting.note(tx, "approve_denied")
        return [reply.error(denied)]
    if seen.policy_error is not None:
        return [reply.error(seen.policy_error)]
    if command.sha != pull_request.head_sha:
        return [reply.another_head(command.sha, pull_request.head_sha)]
    before = tx.hold_approval(acting.repo, acting.pr)
    if before is not None and before.max_usd_micro == command.max_usd_micro:
        return [reply.approved_before(before)]
    approval = Approval(
        id=acting.chance.ulid(),
        repo=acting.repo,
        pr=acting.pr,
        sha=command.sha,
        max_usd_micro=command.max_usd_micro,
        by=seen.who,
        at=tx.now(),
        asked_at=seen.asked_at,
    )
    tx.approve(approval)
    tx.raise_gate(acting.repo, acting.pr)
    most = "" if approval.max_usd_micro is None else str(approval.max_usd_micro)
    acting.note(tx, "approved", approval=approval.id, max_usd_micro=most)
    live = [run for run in tx.live_runs(acting.repo, acting.pr) if run.untrusted and run.cancel_at is None]
    for run in live:
        tx.wake(Kind.RUN, run.id)
    if any(run.state in _BEFORE_A_WORD for run in live):
        return []  # their own comments say it
    return [reply.approved(approval, needed=seen.untrusted is not None)]


def revoke(tx: Tx, acting: Acting, command: Revoke) -> list[str]:
    """With everything that runs under it."""
    denied = acting.denied(command)
    if denied:
        acting.note(tx, "revoke_denied")
        return [reply.error(denied)]
    approval = tx.hold_approval(acting.repo, acting.pr)
    if approval is None:
        return [reply.nothing_to_revoke()]
    who = acting.seen.who
    approvals.end(tx, approval, ApprovalEnd.REVOKED, by=who, actor=f"@{who}")
    tx.raise_gate(acting.repo, acting.pr)
    return [reply.revoked(approval)]


def override(tx: Tx, acting: Acting, command: OverrideJob) -> list[str]:
    """The job counts as passed at the head, until the next push."""
    denied = acting.denied(command)
    if denied:
        acting.note(tx, "override_denied", job=command.job)
        return [reply.error(denied)]
    folder = _folder_of(tx, acting, command)
    if isinstance(folder, list):
        return folder
    row = Override(
        id=acting.chance.ulid(),
        repo=acting.repo,
        pr=acting.pr,
        sha=acting.seen.pull_request.head_sha,
        job=JobName(command.job),
        folder=folder,
        reason=command.reason,
        by=acting.seen.who,
        at=tx.now(),
    )
    tx.override(row)
    acting.note(tx, "overridden", override=row.id, job=row.job, folder=row.folder, reason=row.reason)
    tx.raise_gate(acting.repo, acting.pr)
    return [reply.overridden(row)]


def cancel_override(tx: Tx, acting: Acting, command: CancelOverride) -> list[str]:
    """Of that job at the head, or of all."""
    denied = acting.denied(command)
    if denied:
        acting.note(tx, "override_denied", job=command.job)
        return [reply.error(denied)]
    held = [
        one
        for one in tx.overrides(acting.repo, acting.pr, acting.seen.pull_request.head_sha)
        if command.job in (None, one.job) and command.path in ("", one.folder)
    ]
    if command.job and not command.path and len(held) > 1:
        held = [one for one in held if not one.folder] or held
    if not held:
        return [reply.nothing_overridden(command.job)]
    if command.job and len(held) > 1:
        return [reply.which_folder([render(replace(command, path=one.folder)) for one in held])]
    for one in held:
        tx.end_override(one.id, acting.seen.who)
        acting.note(tx, "override_ended", override=one.id, job=one.job, folder=one.folder)
    tx.raise_gate(acting.repo, acting.pr)
    return [reply.override_ended(held)]


def _folder_of(tx: Tx, acting: Acting, command: OverrideJob) -> str | list[str]:
    """The folder of the job that is meant, or what to say when there is no such job, or no need."""
    needed = _needed(tx, acting)
    if needed is None:  # nobody has looked yet, or nobody can: whoever may override is believed
        return command.path
    folders = [one.folder for one in needed if one.job == command.job]
    if command.path:
        folders = [folder for folder in folders if folder == command.path]
    elif "" in folders:
        return ""
    if len(folders) == 1:
        return folders[0]
    if folders:
        return [reply.which_folder([render(replace(command, path=folder)) for folder in folders])]
    meant = suggest(command.job, [one.job for one in needed])
    guess = next((one for one in needed if one.job == meant), None)
    typed = render(replace(command, job=guess.job, path=guess.folder)) if guess else ""
    return [reply.not_required(command.job, typed)]


def _needed(tx: Tx, acting: Acting) -> tuple[Needed, ...] | None:
    """What a merge needs of the head, as far as that is known."""
    head = acting.seen.pull_request.head_sha
    gate = next((one for one in tx.gates(acting.repo, acting.pr) if one.sha == head), None)
    return gate.look.needed if gate and gate.look and not gate.look.fault else None
