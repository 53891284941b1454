"""What opens a gate, and what ends one. Each function is a part of one transaction and asks nobody."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpurun.domain.forge import PullRequest, RepoRef
from gpurun.domain.gate import Gate
from gpurun.domain.ids import CommitSha, RepoName
from gpurun.domain.run import AuditEntry
from gpurun.flow.events import PullChanged
from gpurun.ports.clock import Chance
from gpurun.ports.store import Tx

LOOKED_LONG_AGO = timedelta(minutes=5)
"""After that a command looks again: the delivery that should have said so may be lost, and the base branch moves."""

_OPENS = frozenset({"opened", "synchronize", "reopened", "ready_for_review"})


def is_told(event: PullChanged) -> bool:
    """Whether a delivery is about a gate."""
    return event.installation is not None and (event.action in {*_OPENS, "closed"} or event.other_base)


def told(tx: Tx, chance: Chance, event: PullChanged) -> None:
    """A delivery: the handler of the row finds out what of it is true."""
    if event.installation is None or not is_told(event):
        return
    pull = event.pull_request
    repo = RepoRef(
        installation_id=event.installation.id, name=RepoName(event.repository.full_name), id=event.repository.id
    )
    if event.action == "closed":
        for gate in tx.gates(repo, pull.number):
            tx.open_gate(gate)
        return
    tx.open_gate(new_gate(tx, chance, repo, pull.number, CommitSha(pull.head.sha), pull.base.ref))


def asked(tx: Tx, chance: Chance, repo: RepoRef, pull_request: PullRequest) -> None:
    """A command that is believed, on a pull request that was looked at just now. Mostly it opens nothing."""
    if not pull_request.open:
        return
    for gate in tx.gates(repo, pull_request.number):
        if gate.sha == pull_request.head_sha and not _is_old(gate.looked_at, tx.now()):
            return
    tx.open_gate(
        new_gate(tx, chance, repo, pull_request.number, pull_request.head_sha, pull_request.base_ref),
    )


def new_gate(tx: Tx, chance: Chance, repo: RepoRef, pr: int, sha: CommitSha, base_ref: str) -> Gate:
    """Due at once."""
    now = tx.now()
    return Gate(id=chance.ulid(), repo=repo, pr=pr, sha=sha, base_ref=base_ref, created_at=now, due_at=now)


def end(tx: Tx, gate: Gate, why: str) -> None:
    """With the overrides of its commit: they were for this head. Its check shows once more where it stands without."""
    for override in tx.overrides(gate.repo, gate.pr, gate.sha):
        if tx.end_override(override.id, why):
            data = {"override": override.id, "sha": gate.sha, "by": why}
            subject = f"repo:{gate.repo.name}#{gate.pr}"
            tx.audit(AuditEntry(at=tx.now(), actor="engine", kind="override_ended", subject=subject, data=data))
    tx.raise_gate(gate.repo, gate.pr)
    tx.end_gate(gate.id)


def _is_old(looked_at: datetime | None, now: datetime) -> bool:
    """A gate that was never looked at is due."""
    return looked_at is not None and now - looked_at > LOOKED_LONG_AGO
