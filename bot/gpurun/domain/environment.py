"""Names of environment variables that a job may not set: the one list, for `env` and for secrets."""

from __future__ import annotations

RESERVED = frozenset({"PATH", "GPURUN", "HF_HOME", "HF_HUB_OFFLINE"})
RESERVED_PREFIXES = ("LD_", "GITHUB_", "RUNPOD_", "DOCKER_", "GPURUN_")


def is_reserved(name: str) -> bool:
    """It steers the loader, the engine, a provider or gpurun itself. Case does not matter."""
    return name.upper() in RESERVED or name.upper().startswith(RESERVED_PREFIXES)
