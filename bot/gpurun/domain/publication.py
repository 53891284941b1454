"""What is to be shown on the forge: one row per target, rendered from the database when it is sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
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
    """The last word: of a run that ended; of a reply or reaction, unless it is for somebody without rights."""
    remote_id: int | None = None
    sent_at: datetime | None = None
    slot_at: datetime | None = None
    """When it is its turn to write (`domain.pace`); used up by the write."""
    tries: int = 0
    last_error: str = ""
    gate_id: str = ""
    """gate and need: what it is about; else empty."""


SOON = timedelta(seconds=15)
"""After the first text of a comment: what was only a promise then is something by now."""
FIRST_EDIT = {PublicationKind.COMMENT: timedelta(minutes=3), PublicationKind.CHECK: timedelta(minutes=10)}
EDITED_AT_MOST = timedelta(hours=1)


def next_edit(row: Publication, run_created_at: datetime) -> datetime:
    """When a run's target that was sent may next show mere progress: the older the run, the rarer.

    So a run of three minutes has one such edit, of ten minutes three, of a day some fifty. What needs a person and what
    is final waits for nothing (docs/decisions/0037-what-is-kept-for-verdicts.md).
    """
    if row.sent_at is None:
        return row.created_at
    age = row.sent_at - run_created_at
    if row.kind is PublicationKind.COMMENT and age < SOON:
        return row.sent_at + SOON
    return row.sent_at + min(max(2 * age, FIRST_EDIT.get(row.kind, EDITED_AT_MOST)), EDITED_AT_MOST)
