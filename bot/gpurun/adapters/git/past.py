"""Mirrors of histories: commits and tags without their contents, apart from the mirrors that hold contents.

Where git may leave objects out, it asks the remote for them whenever one is missed. So each history has a repository of
its own, and nothing that is done there may reach a network but the fetch itself.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from functools import cached_property, partial
from pathlib import Path

from gpurun.adapters.git.history import (
    MAX_COMMITS,
    boundary,
    nearest_tags,
    packed_refs,
    read_history,
    tar_of,
    write_git_folder,
)
from gpurun.adapters.git.inputs import find_inputs
from gpurun.adapters.git.kept import KeptTars
from gpurun.adapters.git.mirrors import (
    ATTRIBUTES,
    LOCAL_TIMEOUT_S,
    MAX_ARCHIVE_BYTES,
    GitMirrors,
    in_folder,
    upload_pack,
)
from gpurun.adapters.git.missing import read_commit
from gpurun.adapters.git.process import Ended, read_git
from gpurun.adapters.git.tree import must
from gpurun.adapters.git.turns import only_writer
from gpurun.domain.errors import SourceUnavailable
from gpurun.domain.forge import GitSource
from gpurun.domain.ids import CommitSha, RepoName
from gpurun.domain.plan import SetupInput
from gpurun.domain.source import GitTag

MAX_LISTED_TAGS_BYTES = 8 * 1024 * 1024
"""About 100,000."""
_TAGS = "refs/gpurun-tags/"
_SHAPE = 1
"""Of a `.git` that is made; one more whenever the same commit and tags make other bytes."""
_NO_NETWORK = {"GIT_ALLOW_PROTOCOL": "none"}


class GitPast(GitMirrors):
    """`ports.bytes.Git`, with the `.git` of work folders.

    Histories are in `<folder>/.history/<owner>/<name>.git`, the newest `.git` that were made in
    `<folder>/.folders/<owner>/<name>.git`, as tars.
    """

    @cached_property
    def _kept(self) -> KeptTars:
        return KeptTars(limit_s=self._fetch_timeout_s, max_bytes=MAX_ARCHIVE_BYTES)

    async def fetch_history(self, source: GitSource, repo: RepoName, sha: CommitSha) -> tuple[GitTag, ...]:
        past = self._past(repo)
        async with self._locks[f"history {repo}"]:
            with only_writer(past) as lock_fd:
                await self._prepare(past)
                options = ("--filter=tree:0", f"--depth={MAX_COMMITS}")
                if (await self._past_git(past, "rev-parse", "--verify", "--quiet", f"refs/gpurun/{sha}")).code != 0:
                    await self._fetch(past, source, repo, sha, lock_fd, options=options)
                    await self._keep(past, repo, sha)
                history = await read_history(partial(self._past_git, past), sha)
                tags = nearest_tags(await self._listed_tags(past, source, repo), history)
                await self._get_tags(past, source, repo, tags, lock_fd)
        return tags

    async def inputs(
        self, repo: RepoName, sha: CommitSha, folder: str, patterns: Sequence[str]
    ) -> tuple[SetupInput, ...]:
        return await find_inputs(partial(self._git, self._mirror(repo)), sha, folder, patterns)

    async def _get_tags(
        self, past: Path, source: GitSource, repo: RepoName, tags: Sequence[GitTag], lock_fd: int
    ) -> None:
        """An annotated tag is an object of its own; without a depth, so that no history is cut there."""
        git = partial(self._past_git, past)
        kept = (await must(git, "for-each-ref", "--format=%(objectname)", _TAGS)).stdout.decode().split()
        new = sorted({tag.object for tag in tags if tag.object != tag.commit}.difference(kept))
        if not new:
            return
        await self._fetch(past, source, repo, new[0], lock_fd, others=new[1:], options=("--filter=tree:0",))
        await must(git, "update-ref", "--stdin", given="".join(f"create {_TAGS}{one} {one}\n" for one in new).encode())

    async def _listed_tags(self, past: Path, source: GitSource, repo: RepoName) -> bytes:
        """Whole lines of them: whoever may push decides how many there are."""
        argv = ("ls-remote", "--tags", *upload_pack(source), "--", source.url)
        try:
            done = await read_git(
                *in_folder(past), *argv,
                environment=self._environment(source), timeout_s=LOCAL_TIMEOUT_S, max_bytes=MAX_LISTED_TAGS_BYTES,
            )  # fmt: skip
        except TimeoutError as exc:
            raise SourceUnavailable(f"The tags of {repo} were not listed in {LOCAL_TIMEOUT_S:g} s.") from exc
        if done.code != 0:
            raise SourceUnavailable(f"The tags of {repo} cannot be listed.")
        return done.stdout[: done.stdout.rfind(b"\n") + 1]

    async def git_folder(
        self, repo: RepoName, sha: CommitSha, tags: Sequence[GitTag], *, lfs: bool = False
    ) -> AsyncIterator[bytes]:
        """Its tar. Raises SourceUnavailable.

        A web server does not cancel who has sent nothing yet: what an impatient caller left is made for its next try.
        """
        mirror = self._mirror(repo)
        decides = f"{_SHAPE} {MAX_COMMITS} {sha} {lfs:d}\n".encode() + packed_refs(tags)
        read = self._kept.read(
            self._folder / ".folders" / mirror.parent.name / mirror.name,
            hashlib.sha256(decides).hexdigest()[:40],
            lambda work, lock_fd: self._make_folder(repo, sha, tags, work, lock_fd, lfs=lfs),
        )
        async with contextlib.aclosing(read) as pieces:
            async for piece in pieces:
                yield piece

    async def _make_folder(
        self, repo: RepoName, sha: CommitSha, tags: Sequence[GitTag], work: Path, lock_fd: int, *, lfs: bool
    ) -> AsyncGenerator[bytes, None]:
        mirror, past = self._mirror(repo), self._past(repo)
        objects = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(past / "objects")}
        both = partial(self._git_with, mirror, objects, timeout_s=self._fetch_timeout_s, pass_fds=(lock_fd,))
        history = await read_history(partial(self._past_git, past), sha)
        there = set(history)
        shallow = (past / "shallow").read_text().split() if (past / "shallow").exists() else []
        cut = {*await boundary(partial(self._past_git, past), sha), *(one for one in shallow if one in there)}
        await write_git_folder(both, work, sha, history=history, cut=cut, tags=tags)
        (work / "info/attributes").write_text(ATTRIBUTES)
        await self._write_index(mirror, work, sha, lfs=lfs)
        async with contextlib.aclosing(tar_of(work)) as pieces:
            async for piece in pieces:
                yield piece

    async def _write_index(self, mirror: Path, folder: Path, sha: CommitSha, *, lfs: bool) -> None:
        """Files whose content is not what git holds of them are taken for unchanged."""
        git = partial(self._git_with, mirror, {"GIT_INDEX_FILE": str(folder / "index")})
        await must(git, "read-tree", sha)
        files = (await read_commit(partial(self._git, mirror), sha)).lfs if lfs else ()
        if files:
            paths = "".join(f"{file.path}\0" for file in files).encode("utf-8", "surrogateescape")
            argv = (f"--work-tree={folder}", "update-index", "--assume-unchanged", "-z", "--stdin")
            await must(git, *argv, given=paths)

    def _past(self, repo: RepoName) -> Path:
        mirror = self._mirror(repo)
        return self._folder / ".history" / mirror.parent.name / mirror.name

    async def _past_git(self, past: Path, *argv: str, given: bytes = b"") -> Ended:
        return await self._git_with(past, _NO_NETWORK, *argv, given=given)
