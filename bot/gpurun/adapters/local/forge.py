"""`ports.forge.Forge` over a checkout: code and commits, but nobody to comment to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path

from gpurun.adapters.local.checkout import Checkout, LocalState
from gpurun.domain.errors import ForgeRefused
from gpurun.domain.forge import (
    ChangedFiles,
    Check,
    CheckSeen,
    Comment,
    Extra,
    GitSource,
    Permission,
    PullRequest,
    RepoFile,
    RepoRef,
    Sent,
)
from gpurun.domain.ids import BranchName, CommitSha, TreeSha
from gpurun.domain.plan import SetupInput
from gpurun.domain.source import Fetched, Gitlink, GitTag

MAX_SNAPSHOT_BYTES = 512 * 1024 * 1024


class LocalForge:
    """The forge of `gpurun run`. Whoever can start it owns the checkout, so every permission is granted.

    Comments, checks and reactions do not exist here: ForgeRefused 404.
    """

    def __init__(self, checkout: Path, *, private: Path | None = None) -> None:
        self._checkout = Checkout(checkout, private=private)

    async def checkout_state(self) -> LocalState:
        """HEAD, and what the working tree has beyond it. Raises: UserError outside of a checkout."""
        return await self._checkout.state()

    async def snapshot(self, *, max_bytes: int = MAX_SNAPSHOT_BYTES) -> CommitSha:
        """The working tree as a commit that only this call knows; see `Checkout.snapshot`."""
        return await self._checkout.snapshot(max_bytes=max_bytes)

    async def commit_of(self, typed: str) -> CommitSha:
        """Of an id, a branch, a tag or `HEAD~2`. Raises UserError when it is none here."""
        return await self._checkout.commit_of(typed)

    async def tree_of(self, sha: CommitSha) -> TreeSha:
        """The tree of a commit that is here."""
        return await self._checkout.tree_of(sha)

    async def contents(self, sha: CommitSha, *, skip: Collection[Extra], get: Collection[Extra]) -> Fetched:
        """Raises PinNotFound when `Git.fetch` would; of submodules only those that the commit itself names."""
        return await self._checkout.contents(sha, skip=skip, get=get)

    async def inputs(self, sha: CommitSha, folder: str, patterns: Sequence[str]) -> tuple[SetupInput, ...]:
        """What `setup_inputs` mean in a commit that is here. Raises NoSuchInput, PinNotFound."""
        return await self._checkout.inputs(sha, folder, patterns)

    async def tags(self, sha: CommitSha) -> tuple[GitTag, ...]:
        """Those that a run's `.git` would hold."""
        return await self._checkout.tags(sha)

    def inside(self, folder: str) -> LocalForge:
        """The forge of another repository on this machine: of a submodule."""
        return LocalForge(Path(folder))

    async def pull_request(self, repo: RepoRef, number: int) -> PullRequest:
        """HEAD, dressed as an open pull request onto itself."""
        state = await self._checkout.state()
        return PullRequest(
            number=number,
            open=True,
            draft=False,
            head_sha=state.sha,
            head_repo=repo.name,
            base_sha=state.sha,
            base_ref=state.branch or "HEAD",
            author="local",
            title=f"{state.top.name} on this machine",
            default_branch=BranchName(state.branch or "HEAD"),
        )

    async def permission(self, repo: RepoRef, login: str) -> Permission:
        return Permission(push=True, maintain=True, admin=True)

    async def read_file(self, repo: RepoRef, at: CommitSha | BranchName, path: str, *, max_bytes: int) -> bytes | None:
        return await self._checkout.read_file(at, path, max_bytes=max_bytes)

    async def read_files(
        self, repo: RepoRef, at: CommitSha | BranchName, paths: Sequence[str], *, max_bytes: int
    ) -> tuple[RepoFile, ...]:
        return await self._checkout.read_files(at, paths, max_bytes=max_bytes)

    async def changed_files(self, repo: RepoRef, number: int) -> ChangedFiles:
        """There is no pull request to change anything."""
        return ChangedFiles(paths=(), all_there=True)

    async def git_source(self, repo: RepoRef) -> GitSource:
        return GitSource(url=str(await self._checkout.top()))

    async def submodule_source(self, repo: RepoRef, link: Gitlink, *, reader: str) -> GitSource:
        """Its own folder in the checkout; nothing is asked of a network."""
        return GitSource(url=str(await self._checkout.submodule(link)), is_proved=True)

    async def comment(self, repo: RepoRef, comment_id: int) -> Comment:
        raise _nobody()

    async def react(self, repo: RepoRef, comment_id: int, content: str) -> int:
        raise _nobody()

    async def create_comment(self, repo: RepoRef, pr: int, body: str) -> int:
        raise _nobody()

    async def update_comment(self, repo: RepoRef, comment_id: int, body: str) -> None:
        raise _nobody()

    async def find_comment(self, repo: RepoRef, pr: int, *, marker: str, since: datetime) -> int | None:
        raise _nobody()

    async def create_check(self, repo: RepoRef, sha: CommitSha, check: Check) -> int:
        raise _nobody()

    async def update_check(self, repo: RepoRef, check_id: int, check: Check) -> bool:
        raise _nobody()

    async def find_check(self, repo: RepoRef, sha: CommitSha, *, name: str, external_id: str) -> int | None:
        raise _nobody()

    async def read_check(self, repo: RepoRef, check_id: int) -> CheckSeen:
        raise _nobody()

    async def delivery(self, guid: str, *, since: datetime) -> Sent | None:
        raise _nobody()


def _nobody() -> ForgeRefused:
    return ForgeRefused("A local checkout has no comments and no checks.", status=404)
