"""Whose layers of `setup` a run may take, and for whom it makes them: as GitHub's own cache does it.

A pull request must not change what others get. So it takes what the default branch made and what it made itself, and
makes layers for itself alone. In this version no run is the default branch's: `SHARED` is read, and empty.
"""

from __future__ import annotations

from gpurun.domain.run import Run
from gpurun.run.trust import may_hold_secrets

SHARED = "shared"
LOCAL = "local"
"""Of `gpurun run`: whoever starts that on this machine may do everything with it."""


def layer_scopes(run: Run) -> tuple[tuple[str, ...], str]:
    """To be read, the first choice first, and to be written. Nothing at all for code that is not the repository's."""
    if not may_hold_secrets(run):
        return (), ""
    if run.pr is not None:
        own = f"pr-{run.pr}"
        return (SHARED, own), own
    scope = LOCAL if run.why == "cli" else SHARED
    return (scope,), scope
