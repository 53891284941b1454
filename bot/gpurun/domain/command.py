"""What a person wrote in a comment."""

from __future__ import annotations

from dataclasses import dataclass

from gpurun.domain.ids import CommitSha


@dataclass(frozen=True, slots=True)
class RunJob:
    """`/gpurun <job>` or `/gpurun run <job>`, with `path=<folder>` or without."""

    job: str
    path: str = ""
    """The folder whose file is meant, as `domain.folder` writes it. Empty: the top, or wherever the job is found."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """`/gpurun cancel [job]`. Without a job: every live run of the pull request, or of that folder."""

    job: str | None = None
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
class Help:
    """`/gpurun` or `/gpurun help`."""


Command = RunJob | Cancel | Approve | Revoke | Help
