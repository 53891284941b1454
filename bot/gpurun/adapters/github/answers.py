"""The few fields that are read from GitHub's answers.

The client's own models are not used: they are stricter than what GitHub and GitHub Enterprise Server really send.
"""

from __future__ import annotations

import re
from datetime import datetime

from msgspec import Raw, Struct, field

GHOST = "ghost"
"""Who wrote what a deleted account wrote."""


class User(Struct):
    """A person, an organisation or a bot."""

    login: str
    type: str = "User"


class App(Struct):
    """`GET /app`, and who made a check."""

    id: int
    slug: str = ""


class TokenRepository(Struct):
    """What an installation token is for."""

    private: bool = True
    """Also what only members of an enterprise see."""


class AccessToken(Struct):
    """An installation token."""

    token: str
    expires_at: datetime
    repositories: list[TokenRepository] = field(default_factory=list)
    """When it was narrowed to some."""


class Repository(Struct):
    """Its name only."""

    full_name: str


class Head(Struct):
    """`repo` is null once the fork is deleted."""

    sha: str
    repo: Repository | None = None


class BaseRepository(Struct):
    """The repository that a pull request goes to."""

    default_branch: str


class Base(Struct):
    """Where the pull request goes."""

    sha: str
    ref: str
    repo: BaseRepository


class Pull(Struct):
    """A pull request."""

    number: int
    state: str
    title: str
    head: Head
    base: Base
    user: User | None = None
    draft: bool = False
    mergeable: bool | None = None
    merge_commit_sha: str | None = None


class ChangedFile(Struct):
    """A file that a pull request adds, changes, renames or removes."""

    filename: str
    previous_filename: str | None = None
    """Of one that was renamed."""


class Comment(Struct):
    """A comment on an issue or pull request."""

    id: int
    created_at: datetime
    updated_at: datetime
    body: str | None = None
    user: User | None = None
    issue_url: str = ""

    @property
    def number(self) -> int:
        """Of that issue; 0 when the address does not end with one."""
        last = self.issue_url.rpartition("/")[2]
        return int(last) if re.fullmatch(r"[0-9]{1,10}", last) else 0


class Rights(Struct):
    """A right that GitHub does not name is none."""

    pull: bool = False
    push: bool = False
    maintain: bool = False
    admin: bool = False


class Collaborator(Struct):
    """The user inside a permission answer."""

    permissions: Rights = field(default_factory=Rights)


class CollaboratorPermission(Struct):
    """The old field `permission` knows four words only and is not read."""

    user: Collaborator | None = None


class TreeEntry(Struct):
    """`size` is there for files only."""

    path: str
    mode: str
    sha: str
    size: int = 0


class RefObject(Struct):
    """What a ref points to."""

    sha: str


class Ref(Struct):
    """A branch."""

    object: RefObject


class Tree(Struct):
    """One folder."""

    tree: list[TreeEntry]
    truncated: bool = False

    def find(self, name: str) -> TreeEntry | None:
        """None when the folder has no such entry."""
        return next((entry for entry in self.tree if entry.path == name), None)


class Blob(Struct):
    """A file's content; `encoding` is base64."""

    content: str
    encoding: str


class Made(Struct):
    """Of everything that was made, only the id counts."""

    id: int


class CheckOutput(Struct):
    """How many annotations GitHub holds."""

    annotations_count: int = 0


class CheckRun(Struct):
    """A check run."""

    id: int
    name: str = ""
    head_sha: str = ""
    status: str = ""
    external_id: str | None = None
    app: App | None = None
    output: CheckOutput = field(default_factory=CheckOutput)


class CheckRuns(Struct):
    """A page of them."""

    check_runs: list[CheckRun]


class HookItem(Struct):
    """A delivery on the list of the App's webhook."""

    id: int
    guid: str
    delivered_at: datetime
    redelivery: bool = False


class HookRequest(Struct):
    """What was sent."""

    payload: Raw = Raw(b"null")


class HookDelivery(HookItem):
    """One delivery, whole."""

    event: str = ""
    request: HookRequest = field(default_factory=HookRequest)
