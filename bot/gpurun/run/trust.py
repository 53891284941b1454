"""Whether the code of a run may hold what its repository keeps secret. Asked wherever a secret is handed out."""

from __future__ import annotations

from gpurun.domain.run import Run

NO_SECRETS = "Code that somebody else had to approve gets no secrets, and the job or its image needs some."


def may_hold_secrets(run: Run) -> bool:
    """Code that ran only because somebody approved it is not the repository's own: it gets none.

    In this version no such run is made: code of forks does not run at all.
    """
    return not run.approval
