"""What a person wrote in a comment."""

from __future__ import annotations

from dataclasses import dataclass

from gpurun.domain.ids import CommitSha


@dataclass(frozen=True, slots=True)
class RunJob:
    """`/gpurun <job>` or `/gpurun run <job>`, with arguments or without."""

    job: str
    path: str = ""
    """The folder whose file is meant, as `domain.folder` writes it. Empty: the top, or wherever the job is found."""
    gpu: str = ""
    """As typed, in the grammar of `resources: {gpu: …}`. Empty: whatever the job says."""
    provider: str = ""
    """Empty: wherever the job may run."""
    sha: str = ""
    """The first 7 to 40 hex digits of the commit that must be the head. Empty: whichever is."""
    repeat: int = 1
    """How many runs of it."""
    max_usd_micro: int | None = None
    """What one run may cost, in micro-USD; None: whatever it costs."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """`/gpurun cancel [job or run id]`. Without either: every live run of the pull request, or of that folder."""

    job: str | None = None
    """Or the id of a run."""
    path: str = ""
    """The folder whose file is meant. Empty: the top, or the only one in which the job runs."""


@dataclass(frozen=True, slots=True)
class Approve:
    """`/gpurun approve sha=<40 hex>`, with `max-cost=<usd>` or without."""

    sha: CommitSha
    max_usd_micro: int | None = None
    """What a run may cost, in micro-USD; None: whatever it costs."""


@dataclass(frozen=True, slots=True)
class Revoke:
    """`/gpurun revoke`: the approval of the pull request ends, and what runs under it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """`/gpurun retry [job]` and `/gpurun retry all`."""

    job: str | None = None
    """None: every job whose newest run at the head ended so that another try makes sense."""
    path: str = ""
    every: bool = False
    """Also those that passed, were refused or cancelled."""


@dataclass(frozen=True, slots=True)
class ListJobs:
    """`/gpurun list`."""


@dataclass(frozen=True, slots=True)
class Status:
    """`/gpurun status`."""


@dataclass(frozen=True, slots=True)
class Logs:
    """`/gpurun logs [job or run id]`. Without either: the newest run of the pull request."""

    job: str | None = None
    """Or the id of a run."""
    path: str = ""


@dataclass(frozen=True, slots=True)
class OverrideJob:
    """`/gpurun override <job> reason="…"`: the job counts as passed at the head, until the next push."""

    job: str
    reason: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class CancelOverride:
    """`/gpurun override cancel [job]`. Without a job: every override at the head."""

    job: str | None = None
    path: str = ""


@dataclass(frozen=True, slots=True)
class PauseRepo:
    """`/gpurun pause reason="…"`: nothing starts in the repository."""

    reason: str


@dataclass(frozen=True, slots=True)
class ResumeRepo:
    """`/gpurun resume`."""


@dataclass(frozen=True, slots=True)
class StopAll:
    """`/gpurun stop-all`: every live run of the repository is cancelled."""


@dataclass(frozen=True, slots=True)
class Help:
    """`/gpurun` or `/gpurun help`."""


Starting = RunJob | Retry
Stopping = Cancel | StopAll | PauseRepo | ResumeRepo
Answering = Approve | Revoke | OverrideJob | CancelOverride
"""What somebody writes who answers for code, or for what a merge needs."""
Asking = Help | ListJobs | Status | Logs
"""What anyone may write: it changes nothing."""

Command = Starting | Stopping | Answering | Asking
