"""Which pull requests the `paths` of a job mean. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gpurun_agent.globs import Globs

MAX_COMPARED = 200_000_000
"""Characters of changed paths times those of patterns. Beyond it the job applies: nobody gets around it by much."""


def touched(changed: Sequence[str], folder: str, patterns: Sequence[str], *, most: int = MAX_COMPARED) -> bool:
    """Whether a job with these `paths` applies. No patterns: whatever is changed in its folder.

    `changed`: paths from the top of the repository. `folder`: of the job's file; its patterns are relative to it.
    """
    top = f"{folder}/" if folder else ""
    below = [path[len(top) :] for path in changed if path.startswith(top)]
    if not patterns:
        return not folder or bool(below)
    if sum(map(len, below)) * sum(map(len, patterns)) > most:
        return True
    globs = Globs([os.fsencode(pattern) for pattern in patterns])
    return any(globs.match(os.fsencode(path)) >= 0 for path in below)
