"""The forge: where code, comments and checks live. `adapters.github` and `adapters.local` implement it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from gpurun.domain.forge import (
    ChangedFiles,
    Check,
    CheckSeen,
    Comment,
    GitSource,
    Permission,
    PullRequest,
    RepoFile,
    RepoRef,
    Sent,
)
from gpurun.domain.ids import BranchName, CommitSha
from gpurun.domain.source import Gitlink


class Forge(Protocol):
    """Every call has a timeout of its own below 30 s and no hidden retry.

    Raises: ForgeUnavailable (try again, `retry_after_s` when told), ForgeRefused (with `status`; 404 included).
    """

    async def pull_request(self, repo: RepoRef, number: int) -> PullRequest:
        """As it is now."""
        ...

    async def comment(self, repo: RepoRef, comment_id: int) -> Comment:
        """As it is now; ForgeRefused 404 when it was deleted."""
        ...

    async def permission(self, repo: RepoRef, login: str) -> Permission:
        """Fresh, never cached. A person without any relation has none of the three rights."""
        ...

    async def read_file(self, repo: RepoRef, at: CommitSha | BranchName, path: str, *, max_bytes: int) -> bytes | None:
        """The file at that commit or branch; None when there is none.

        Raises: UserError when it is larger than `max_bytes`, or a symlink, a folder or a submodule stands there.
        """
        ...

    async def read_files(
        self, repo: RepoRef, at: CommitSha | BranchName, paths: Sequence[str], *, max_bytes: int
    ) -> tuple[RepoFile, ...]:
        """Those of the files that are there, in the order of `paths`; a symlink, folder or submodule is none.

        Of a branch all are of one commit.

        Folders that several of them share are looked at once.
        """
        ...

    async def changed_files(self, repo: RepoRef, number: int) -> ChangedFiles:
        """What the pull request changes as it is now, also where moved files were; a hundred files a request."""
        ...

    async def git_source(self, repo: RepoRef) -> GitSource:
        """Where git fetches from, with a fresh credential."""
        ...

    async def submodule_source(self, repo: RepoRef, link: Gitlink, *, reader: str) -> GitSource:
        """Where git fetches a submodule from; its `url` holds no credential and is the name of its mirror.

        Asked anew each time: a private one is only for a `reader` who may read it, with a credential for it alone. An
        empty `reader` is nobody: only what everybody may read.
        Raises: PinNotFound (a place that nothing is fetched from, or nobody there, or not for that reader).
        """
        ...

    async def react(self, repo: RepoRef, comment_id: int, content: str) -> int:
        """Idempotent at the forge. Returns the reaction's id."""
        ...

    async def create_comment(self, repo: RepoRef, pr: int, body: str) -> int:
        """Not idempotent: on a doubt look with `find_comment` first."""
        ...

    async def update_comment(self, repo: RepoRef, comment_id: int, body: str) -> None:
        """ForgeRefused 404 when a person deleted it."""
        ...

    async def find_comment(self, repo: RepoRef, pr: int, *, marker: str, since: datetime) -> int | None:
        """A comment by our App that ends with `marker`, updated at or after `since`."""
        ...

    async def create_check(self, repo: RepoRef, sha: CommitSha, check: Check) -> int:
        """Not idempotent: on a doubt look with `find_check` first."""
        ...

    async def update_check(self, repo: RepoRef, check_id: int, check: Check) -> bool:
        """More than 50 annotations are sent in several calls.

        False: it was completed before and stays so, and only a new one can show that something goes on.
        """
        ...

    async def find_check(self, repo: RepoRef, sha: CommitSha, *, name: str, external_id: str) -> int | None:
        """The newest check run by our App with that name and external id."""
        ...

    async def read_check(self, repo: RepoRef, check_id: int) -> CheckSeen:
        """As it is now; ForgeRefused 404 when there is none."""
        ...

    async def delivery(self, guid: str, *, since: datetime) -> Sent | None:
        """What the forge itself has sent us under that id at or after `since`; None when nothing is on its list (yet).

        Whoever has the secret of the webhook can sign a delivery, and cannot put one on that list.
        Raises: ForgeRefused 422 when the list is too long to be looked through.
        """
        ...
