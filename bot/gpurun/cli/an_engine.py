"""What to do where no Docker Engine answers."""

from __future__ import annotations


def get_an_engine(error: BaseException) -> str:
    """What to type next, by what `error` was caused by."""
    if _caused_by(error, PermissionError):
        return "This user may not use the engine's socket; members of the group `docker` may."
    return (
        "Start Docker, or install it: docs.docker.com/engine/install. "
        "An engine elsewhere: set DOCKER_HOST or GPURUN_DOCKER_HOST."
    )


def _caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__
    return error is not None
