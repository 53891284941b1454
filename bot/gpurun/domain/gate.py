"""What must have passed before a pull request may be merged, and who said otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpurun.domain.changed import Changed
from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import CommitSha, JobName
from gpurun.domain.run import Fault


class GateState(StrEnum):
    """Whether anybody still asks. None is renamed while rows can hold it."""

    OPEN = "open"
    OVER = "over"
    """The pull request has another head, or is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """A required job, as the base branch has it."""

    job: JobName
    folder: str = ""
    """Of its file, from the top of the repository; empty for the top."""
    applies: bool = True
    """False: the pull request touches none of its `paths`."""
    by_head: bool = False
    """Only the pull request's own copy requires it: it may add, and nothing else."""
    gone: bool = False
    """The pull request removes the job."""
    changed: tuple[Changed, ...] = ()
    """What the pull request changes of it: an approver has to see that."""
    fault: str = ""
    """Why its copy in the pull request cannot be read, in a sentence: nobody can say then what would be confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLook:
    """What the forge said of one commit of a pull request."""

    needed: tuple[Needed, ...] = ()
    fault: str = ""
    """Why nobody can know what is required, in a sentence; empty when it is known."""
    unsure: str = ""
    """Why not everything that is required may have been seen, in a sentence. Who approves the commit accepts that."""
    base_ref: str = ""
    """The branch that was looked at."""
    faults: tuple[Fault, ...] = ()
    """Of the pull request's own files, where the base branch requires a job of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The check `gpurun/gate` of one commit of one pull request: a row of work that looks at the forge."""

    id: str
    repo: RepoRef
    pr: int
    sha: CommitSha
    base_ref: str
    created_at: datetime
    state: GateState = GateState.OPEN
    due_at: datetime | None
    tries: int = 0
    last_error: str = ""
    look: GateLook | None = None
    """None before the first one."""
    looked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Somebody let a required job of one commit count as passed. A row is never deleted."""

    id: str
    repo: RepoRef
    pr: int
    sha: CommitSha
    job: JobName
    folder: str
    reason: str
    """Untrusted text."""
    by: str
    at: datetime
    ended_at: datetime | None = None
    ended_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Nothing starts in a repository. A row is never deleted."""

    id: str
    repo: RepoRef
    reason: str
    """Untrusted text."""
    by: str
    at: datetime
    ended_at: datetime | None = None
    ended_by: str = ""
