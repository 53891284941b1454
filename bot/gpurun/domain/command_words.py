"""The words of commands: no job may be called like one."""

from __future__ import annotations

WORDS_NOW = (
    "run",
    "cancel",
    "retry",
    "list",
    "status",
    "logs",
    "approve",
    "revoke",
    "override",
    "pause",
    "resume",
    "stop-all",
    "help",
)
"""Words that this version acts on. `command.grammar` gives them their arguments, rights and help."""

WORDS_PLANNED = (
    "estimate",
    "diff",
    "repro",
    "baseline",
    "keep",
    "budget",
)
"""Words that are answered with "not in this version"."""

ARGUMENTS_PLANNED = ("spot",)
"""Keys of `key=value` that are answered with "not in this version"."""

RESERVED_WORDS = frozenset(WORDS_NOW + WORDS_PLANNED)
"""No job may be called like one of them: `/gpurun <job>` would be ambiguous."""
