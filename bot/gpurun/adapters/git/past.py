"""Mirrors of histories: commits and tags without their contents, apart from the mirrors that hold contents.

Where git may leave objects out, it asks the remote for them whenever one is missed. So each history has a repository of
its own, and nothing that is done there may reach a network but the fetch itself.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

from gpurun.adapters.git.history import MAX_COMMITS, boundary, nearest_tags, read_history, tar_of, write_git_folder
from gpurun.adapters.git.inputs import find_inputs
from gpurun.adapters.git.mirrors import ATTRIBUTES, LOCAL_UPLOAD_PACK, GitMirrors
from gpurun.adapters.git.missing import read_commit
from gpurun.adapters.git.process import Ended
from gpurun.adapters.git.tree import must
from gpurun.adapters.git.turns import only_writer
from gpurun.domain.errors import SourceUnavailable
from gpurun.domain.forge import GitSource
from gpurun.domain.ids import CommitSha, RepoName
from gpurun.domain.plan import SetupInput
from gpurun.domain.source import MAX_SOURCE_BYTES, GitTag

_MAX_LISTED_BYTES = 8 * 1024 * 1024
_NO_NETWORK = {"GIT_ALLOW_PROTOCOL": "none"}


class GitPast(GitMirrors):
    """`ports.bytes.Git`, with the `.git` of work folders. Histories are in `<folder>/.history/<owner>/<name>.git`."""

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
                for tag in tags:
                    await self._get_tag(past, source, repo, tag, lock_fd)
        return tags

    async def inputs(
        self, repo: RepoName, sha: CommitSha, folder: str, patterns: Sequence[str]
    ) -> tuple[SetupInput, ...]:
        return await find_inputs(partial(self._git, self._mirror(repo)), sha, folder, patterns)

    async def _get_tag(self, past: Path, source: GitSource, repo: RepoName, tag: GitTag, lock_fd: int) -> None:
        """An annotated tag is an object of its own; without a depth, so that no history is cut there."""
        ref = f"refs/gpurun-tags/{tag.object}"
        if tag.object == tag.commit or (await self._past_git(past, "rev-parse", "--verify", "--quiet", ref)).code == 0:
            return
        await self._fetch(past, source, repo, tag.object, lock_fd, options=("--filter=tree:0",))
        await must(partial(self._past_git, past), "update-ref", ref, tag.object)

    async def _listed_tags(self, past: Path, source: GitSource, repo: RepoName) -> bytes:
        argv = ["ls-remote", "--tags"]
        if source.url.startswith("/"):
            argv.append(f"--upload-pack={LOCAL_UPLOAD_PACK}")
        done = await self._git_with(past, self._environment(source), *argv, "--", source.url)
        if done.code != 0:
            raise SourceUnavailable(f"The tags of {repo} cannot be listed.")
        return done.stdout[:_MAX_LISTED_BYTES]

    async def git_folder(
        self, repo: RepoName, sha: CommitSha, tags: Sequence[GitTag], *, lfs: bool = False
    ) -> AsyncIterator[bytes]:
        """Its tar. Raises SourceUnavailable."""
        mirror, past = self._mirror(repo), self._past(repo)
        both = partial(self._git_with, mirror, {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(past / "objects")})
        history = await read_history(partial(self._past_git, past), sha)
        there = set(history)
        shallow = (past / "shallow").read_text().split() if (past / "shallow").exists() else []
        cut = {*await boundary(partial(self._past_git, past), sha), *(one for one in shallow if one in there)}
        with tempfile.TemporaryDirectory(prefix=".git-", dir=self._folder) as made:
            folder = Path(made) / "git"
            await write_git_folder(both, folder, sha, history=history, cut=cut, tags=tags)
            (folder / "info/attributes").write_text(ATTRIBUTES)
            await self._write_index(mirror, folder, sha, lfs=lfs)
            n_bytes = 0
            async with contextlib.aclosing(tar_of(folder)) as pieces:
                async for piece in pieces:
                    n_bytes += len(piece)
                    if n_bytes > MAX_SOURCE_BYTES:
                        raise SourceUnavailable(f"The git folder of {repo} at {sha} is too large.")
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
