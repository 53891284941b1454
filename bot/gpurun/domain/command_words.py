"""The words of commands: no job may be called like one."""

from __future__ import annotations

WORDS_NOW = ("run", "cancel", "approve", "revoke", "help")
"""Words that this version acts on. `command.grammar` gives them their arguments, rights and help."""

WORDS_PLANNED = (
    "list",
    "estimate",
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

ARGUMENTS_PLANNED = ("gpu", "provider", "spot", "repeat", "reason")
"""Keys of `key=value` that are answered with "not in this version"."""

RESERVED_WORDS = frozenset(WORDS_NOW + WORDS_PLANNED)
"""No job may be called like one of them: `/gpurun <job>` would be ambiguous."""
