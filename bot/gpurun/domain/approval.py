"""Who allowed code to run that nobody of the repository answers for, and until when that held."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import CommitSha


class ApprovalEnd(StrEnum):
    """Why an approval does not hold any more. None is renamed while rows can hold it."""

    PUSHED = "pushed"
    """The pull request has another head, or had one for a moment."""
    CLOSED = "closed"
    DRAFTED = "drafted"
    REBASED = "rebased"
    """The pull request goes to another branch, whose rules are others."""
    REVOKED = "revoked"
    REPLACED = "replaced"
    """Somebody approved again, with another ceiling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One word of one person for one commit. A row is never deleted: it is the record of who allowed what."""

    id: str
    repo: RepoRef
    pr: int
    sha: CommitSha
    max_usd_micro: int | None
    """What a run may cost, in micro-USD; None: whatever it costs."""
    by: str
    at: datetime
    """By the database's clock."""
    asked_at: datetime
    """When the person asked for it, by the forge's clock: what the forge did before is no reason to end it."""
    ended_at: datetime | None = None
    end: ApprovalEnd | None = None
    ended_by: str = ""
    """Who revoked or replaced it, or the new head."""

    def covers(self, usd_micro: int) -> bool:
        """The ceiling allows that much."""
        return self.max_usd_micro is None or usd_micro <= self.max_usd_micro
