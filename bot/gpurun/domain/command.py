"""What a person wrote in a comment."""

from __future__ import annotations

from dataclasses import dataclass


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
class Help:
    """`/gpurun` or `/gpurun help`."""


Command = RunJob | Cancel | Help
