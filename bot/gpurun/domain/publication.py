"""What is to be shown on the forge: one row per target, rendered from the database when it is sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpurun.domain.forge import RepoRef


class PublicationKind(StrEnum):
    """What the target is."""

    REACT = "react"
    COMMENT = "comment"
    """The one comment of (pull request, job)."""
    REPLY = "reply"
    """A comment whose text is fixed: help, refusals."""
    CHECK = "check"
    """Of a run."""
    GATE = "gate"
    """The check `gpurun/gate` of one commit."""
    NEED = "need"
    """The check of a required job that nobody has started."""


class PublicationState(StrEnum):
    """How far a target is; docs/concepts/engine.md says what each means."""

    IDLE = "idle"
    DUE = "due"
    SENDING = "sending"
    RECONCILING = "reconciling"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A target and how much of the truth it shows."""

    id: str
    kind: PublicationKind
    repo: RepoRef
    pr: int
    """0 for a check without a pull request."""
    run_id: str
    """Empty for reactions, and for replies but one with the log of a run."""
    text: str
    """reply: its body; react: the reaction's content; need: the job, as `smoke` or `smoke (sub)`; else empty."""
    comment_id: int
    """react: what is reacted to; else 0."""
    nonce: str
    """Stands in the hidden marker, so that a comment posted by a dead process is found again."""
    created_at: datetime
    state: PublicationState = PublicationState.DUE
    due_at: datetime | None
    desired_rev: int = 1
    sent_rev: int = 0
    final: bool = False
    remote_id: int | None = None
    sent_at: datetime | None = None
    slot_at: datetime | None = None
    """When it is its turn to write (`domain.pace`); used up by the write."""
    tries: int = 0
    last_error: str = ""
    gate_id: str = ""
    """gate and need: what it is about; else empty."""
