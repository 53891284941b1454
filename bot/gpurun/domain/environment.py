"""Names of environment variables that a job may not set: the one list, for `env` and for secrets."""

from __future__ import annotations

import re

from gpurun.domain.quantity import quoted

RESERVED = frozenset({"PATH", "GPURUN", "HF_HOME", "HF_HUB_OFFLINE"})
RESERVED_PREFIXES = ("LD_", "GITHUB_", "RUNPOD_", "DOCKER_", "GPURUN_")
NAME_IN_CAPITALS = r"[A-Z_][A-Z0-9_]{0,255}"
"""Of a secret."""


def is_reserved(name: str) -> bool:
    """It steers the loader, the engine, a provider or gpurun itself. Case does not matter."""
    return name.upper() in RESERVED or name.upper().startswith(RESERVED_PREFIXES)


def name_fault(name: str) -> str:
    """Why a secret cannot have this name, in a sentence; empty when it can."""
    if not re.fullmatch(NAME_IN_CAPITALS, name):
        return f"{quoted(name)} cannot be the name of a secret. Use capital letters, digits and '_', no digit first."
    if is_reserved(name):
        return f"{name} is reserved and cannot be set by a job. Choose another name."
    return ""
