"""What a forge (GitHub, or a local checkout) tells us."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import SecretStr

from gpurun.domain.ids import BranchName, CommitSha, RepoName


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoRef:
    """A repository as one installation of the App sees it."""

    installation_id: int
    """0 on the local forge."""
    name: RepoName
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """A pull request as the API gave it just now."""

    number: int
    open: bool
    draft: bool
    head_sha: CommitSha
    head_repo: str | None
    """None when the fork was deleted."""
    base_sha: CommitSha
    base_ref: str
    author: str
    title: str
    default_branch: BranchName
    """Of the repository that it goes to."""
    author_is_bot: bool = False
    mergeable: bool | None = None
    """None: the forge is still finding out."""
    merge_sha: CommitSha | None = None
    """What the head and the base become together; only means something while it is mergeable."""

    def is_fork_of(self, repo: RepoName) -> bool:
        """True also when the head repository is gone."""
        return self.head_repo is None or self.head_repo.lower() != repo.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFiles:
    """What a pull request changes."""

    paths: tuple[str, ...]
    """From the top of the repository, in the forge's order; files that it removes, and names that it gives up, too."""
    all_there: bool
    """False: the forge lists no more of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoFile:
    """A file at a commit."""

    path: str
    content: bytes | None
    """None when it is larger than what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment as the API gave it just now."""

    id: int
    number: int
    """The issue or pull request that it stands on; 0 when the forge did not say."""
    author: str
    author_is_bot: bool
    body: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """`user.permissions` of GitHub's collaborator-permission call; the only source of authority."""

    push: bool
    maintain: bool
    admin: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSource:
    """Where a commit is fetched from."""

    url: str
    """`https://host/owner/name.git`, or a folder for the local forge."""
    authorization: SecretStr | None = None
    """Value of an `Authorization` header; never in argv or in a stored config."""
    is_proved: bool = False
    """The forge has just said that this run may have what is there, so that what was fetched before may be given to it.
    Else only the place itself can say so, when it is asked with `authorization`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSeen:
    """A check run as the API gave it just now."""

    id: int
    name: str
    external_id: str
    """What its maker wrote into it; empty for nothing."""
    head_sha: CommitSha
    ours: bool
    """Our App made it. Another one may write what it likes into `external_id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A webhook delivery as the forge itself keeps it."""

    event: str
    body: bytes = field(repr=False)
    at: datetime
    """When it was sent."""
    again: bool
    """Somebody had it sent once more: what it tells of happened before."""


class CheckStatus(StrEnum):
    """`status` of a check run."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


Conclusion = Literal["success", "failure", "timed_out", "cancelled", "action_required"]
"""Never neutral or skipped: GitHub lets both pass a required check."""


class Extra(StrEnum):
    """What a commit may point to and does not hold."""

    LFS = "lfs"
    """Files of git LFS: a pointer of three lines stands in their place."""
    SUBMODULES = "submodules"
    """Other repositories: an empty folder stands in their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One line of a file to point at."""

    path: str
    line: int
    message: str
    title: str = ""
    level: Literal["notice", "warning", "failure"] = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAction:
    """A button. Label ≤ 20, description ≤ 40, identifier ≤ 20 characters."""

    label: str
    description: str
    identifier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check run to be shown. `report.check` builds it within GitHub's limits."""

    name: str
    external_id: str
    status: CheckStatus
    conclusion: Conclusion | None
    title: str
    summary: str
    text: str = ""
    details_url: str = ""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    annotations: tuple[Annotation, ...] = ()
    actions: tuple[CheckAction, ...] = ()
