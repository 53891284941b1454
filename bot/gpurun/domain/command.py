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

WORDS_NOW = ("run", "cancel", "help")
"""Words that this version acts on. `command.grammar` gives them their arguments, rights and help."""

WORDS_PLANNED = (
    "list",
    "estimate",
    "approve",
    "revoke",
    "retry",
    "status",
    "logs",
    "diff",
    "repro",
    "baseline",
    "override",
    "keep",
    "budget",
    "pause",
    "resume",
)
"""Words that are answered with "not in this version"."""

ARGUMENTS_PLANNED = ("gpu", "provider", "spot", "repeat", "sha", "max-cost", "reason")
"""Keys of `key=value` that are answered with "not in this version"."""

RESERVED_WORDS = frozenset(WORDS_NOW + WORDS_PLANNED)
"""No job may be called like one of them: `/gpurun <job>` would be ambiguous."""
