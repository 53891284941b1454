"""What a person wrote in a comment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunJob:
    """`/gpurun <job>` or `/gpurun run <job>`."""

    job: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """`/gpurun cancel [job]`. Without a job: every live run of the pull request."""

    job: str | None = None


@dataclass(frozen=True, slots=True)
class Help:
    """`/gpurun` or `/gpurun help`."""


Command = RunJob | Cancel | Help
