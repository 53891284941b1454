"""What the fake GitHub knows: people, repositories, pull requests, comments, checks, tokens. State, not scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import RepoName
from tests.fakes.github.gitrepo import GitRepo

Role = Literal["none", "read", "triage", "write", "maintain", "admin"]
ROLES: tuple[Role, ...] = ("none", "read", "triage", "write", "maintain", "admin")
"""Each includes those before it."""


@dataclass(eq=False)
class Account:
    """A person, an organisation or an App's bot."""

    id: int
    login: str
    kind: Literal["User", "Organization", "Bot"] = "User"


@dataclass(eq=False)
class Installation:
    """The App at one account."""

    id: int
    account: Account
    permissions: Mapping[str, str]
    repos: set[str] = field(default_factory=set)
    """Lower-case full names."""
    suspended: bool = False


@dataclass(eq=False)
class Repo:
    """A repository; its code is a real bare git repository."""

    id: int
    name: str
    """`owner/name`"""
    owner: Account
    git: GitRepo
    installation_id: int
    private: bool = False
    default_branch: str = "main"
    roles: dict[str, Role] = field(default_factory=dict)
    """Lower-case login to role."""
    parent: Repo | None = None
    pulls: dict[int, Pull] = field(default_factory=dict)
    issues: dict[int, Issue] = field(default_factory=dict)
    checks: dict[int, CheckRun] = field(default_factory=dict)
    number: int = 0
    """Of the last issue or pull request."""
    lfs: dict[str, bytes] = field(default_factory=dict)
    """Contents by their SHA-256; one may hold other bytes than its name says."""
    lfs_host: str = ""
    """Where contents are downloaded; empty for the site itself."""

    def grant(self, login: str, role: Role) -> None:
        """`write` and more may start runs."""
        self.roles[login.lower()] = role

    def role_of(self, login: str) -> Role:
        """Everybody reads a public repository; the owner has every right."""
        if login.lower() == self.owner.login.lower():
            return "admin"
        return self.roles.get(login.lower(), "none" if self.private else "read")

    @property
    def ref(self) -> RepoRef:
        """As the bot knows it."""
        return RepoRef(installation_id=self.installation_id, name=RepoName(self.name), id=self.id)


@dataclass(eq=False)
class Issue:
    """What an issue and a pull request share: a number, a title, a conversation."""

    id: int
    repo: Repo
    number: int
    title: str
    author: Account
    created_at: datetime
    body: str = ""
    updated_at: datetime | None = None
    """None: when it was made."""
    locked: bool = False
    state: Literal["open", "closed"] = "open"
    comments: dict[int, Comment] = field(default_factory=dict)
    """By id, oldest first. Deleted ones are gone."""


@dataclass(eq=False)
class Pull(Issue):
    """A pull request. Its head follows the branch for as long as it is open."""

    head_repo: Repo | None = None
    """None when the fork was deleted."""
    head_label: str = ""
    """`owner:branch`"""
    head_branch: str = ""
    head_sha: str = ""
    base_branch: str = "main"
    base_sha: str = ""
    draft: bool = False
    merges: bool = True
    """False: GitHub has not found out yet whether it can be merged."""
    merged_at: datetime | None = None


@dataclass(eq=False)
class Reaction:
    """👀 is `eyes`."""

    id: int
    author: Account
    content: str


@dataclass(eq=False)
class Comment:
    """On an issue or pull request."""

    id: int
    on: Issue
    author: Account
    body: str
    created_at: datetime
    updated_at: datetime
    app_id: int | None = None
    """The App that wrote it."""
    reactions: list[Reaction] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    """Earlier bodies, oldest first."""


@dataclass(frozen=True)
class CheckAnnotation:
    """A line in a file."""

    path: str
    start_line: int
    end_line: int
    level: str
    message: str
    title: str = ""


@dataclass(frozen=True)
class CheckButton:
    """A requested action."""

    label: str
    description: str
    identifier: str


@dataclass(eq=False)
class CheckRun:
    """A check of one App on one commit."""

    id: int
    repo: Repo
    app_id: int
    name: str
    head_sha: str
    status: str = "queued"
    conclusion: str | None = None
    external_id: str = ""
    details_url: str = ""
    title: str = ""
    summary: str = ""
    text: str = ""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    annotations: list[CheckAnnotation] = field(default_factory=list)
    """Updates add, they never replace."""
    actions: list[CheckButton] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    """Every title it had, oldest first."""


@dataclass(frozen=True)
class Token:
    """An installation access token."""

    value: str
    installation_id: int
    permissions: Mapping[str, str]
    repos: frozenset[str] | None
    """Lower-case full names when it was narrowed."""
    expires_at: datetime


@dataclass(eq=False)
class SentHook:
    """A webhook delivery, made once and possibly sent several times."""

    guid: str
    event: str
    action: str
    body: bytes
    headers: Mapping[str, str]
    made_at: datetime
    statuses: list[int] = field(default_factory=list)
    """One per try; 0 when nobody answered."""
    installation_id: int = 0
    repo_id: int | None = None
    truth: bytes = field(init=False)
    """What GitHub's own record says, whatever somebody makes of `body`."""

    def __post_init__(self) -> None:
        self.truth = self.body


@dataclass(frozen=True)
class HookRecord:
    """One try to send a delivery, as the App can read it."""

    id: int
    hook: SentHook
    at: datetime
    status: int
    again: bool


@dataclass(frozen=True)
class SeenRequest:
    """An API request as the access log keeps it. Never holds a token."""

    method: str
    path: str
    query: str
    status: int
    """0: the answer was withheld."""
