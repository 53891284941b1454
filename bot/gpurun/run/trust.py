"""Whose code a run carries, and what follows from it. Pure: what the forge said is given."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from gpurun.domain.approval import Approval
from gpurun.domain.forge import Permission, PullRequest
from gpurun.domain.ids import RepoName
from gpurun.domain.run import Run, Untrusted

NO_SECRETS = (
    "Code that somebody else had to approve gets no secrets, and the job or its image needs some. "
    "Somebody with write access can open a pull request with it from a branch of this repository."
)


def untrusted_because(
    pull_request: PullRequest, repo: RepoName, *, author: Permission | None, bots: Collection[str]
) -> Untrusted | None:
    """None when somebody of the repository answers for the code: it lies there, and its author may push there.

    `author`: the rights of whoever opened the pull request, None when nobody asked; who asks for a run does not count.
    `bots`: those that the default branch trusts. What GitHub says of a bot's rights is about another API, and not read.
    """
    if pull_request.is_fork_of(repo):
        return Untrusted.FORK
    if pull_request.author_is_bot:
        return None if pull_request.author.lower() in bots else Untrusted.AUTHOR
    return None if author is not None and author.push else Untrusted.AUTHOR


def may_hold_secrets(run: Run) -> bool:
    """Whether the code of a run may hold what its repository keeps secret. Asked wherever a secret is handed out.

    Code that runs only because somebody approved it is not the repository's own, and gets none.
    """
    return run.untrusted is None


def while_approved(run: Run, approval: Approval | None, now: datetime) -> Run:
    """The run as its attempts see it: without the approval that it needs it is as one that was called off.

    Whoever ends an approval calls off what runs under it; this is for whoever does not.
    """
    if run.cancel_at is not None or is_approved(run, approval):
        return run
    return replace(run, cancel_at=now, cancel_by="the end of its approval")


def is_approved(run: Run, approval: Approval | None) -> bool:
    """The run may have an instance, as far as whose code it is. `approval`: the one in force for its pull request."""
    return run.untrusted is None or (approval is not None and approval.sha == run.sha)
