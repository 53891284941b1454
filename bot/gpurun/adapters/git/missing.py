"""What a commit points to and does not hold: submodules, and files of git LFS."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from gpurun.adapters.git.tree import AskGit, Entry, must, read_contents, read_entries
from gpurun.domain.errors import PinNotFound
from gpurun.domain.forge import NotFetched
from gpurun.domain.ids import CommitSha
from gpurun.domain.quantity import quoted

SHOWN = 5
"""Paths that a refusal names."""

_POINTER = re.compile(rb"version https://(?:git-lfs\.github\.com/spec|hawser\.github\.com/spec)/v[0-9]+\n")
_POINTER_BYTES = range(100, 1024)
"""Source: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md, read 2026-12: a pointer is less than 1,024 bytes.
Version, oid and size have 127."""
_ATTRIBUTE = b"filter=lfs"
_MAX_ATTRIBUTES = 1024 * 1024
_MAX_ALL_ATTRIBUTES = 32 * 1024 * 1024
"""Of the different ones together. With more nobody reads them, and the pointers are looked for in any case."""


async def find_missing(git: AskGit, sha: CommitSha) -> Mapping[NotFetched, Sequence[str]]:
    """Paths, in the order of the tree; of LFS at most SHOWN + 1. Raises SourceUnavailable."""
    entries = tuple(read_entries((await must(git, "ls-tree", "-r", "-z", "-l", "--full-tree", sha)).stdout))
    return {
        NotFetched.SUBMODULES: [entry.path for entry in entries if entry.mode == b"160000"],
        NotFetched.LFS: await _pointers(git, entries),
    }


def require_whole(missing: Mapping[NotFetched, Sequence[str]], sha: CommitSha, skip: Collection[NotFetched]) -> None:
    """Raises PinNotFound when something is missing that the job did not say it does without."""
    told = [_told(what, paths) for what, paths in missing.items() if paths and what not in skip]
    if told:
        keys = ", ".join(f"{what}: skip" for what, paths in missing.items() if paths)
        raise PinNotFound(
            f"Commit {sha[:12]} holds {' and '.join(told)}, which gpurun does not fetch.",
            hint=f"If the job does not need them, write `checkout: {{{keys}}}`; else get them in `setup`.",
        )


def _told(what: NotFetched, paths: Sequence[str]) -> str:
    named = ", ".join(quoted(path) for path in paths[:SHOWN]) + (", …" if len(paths) > SHOWN else "")
    return f"{'submodules' if what is NotFetched.SUBMODULES else 'files of git LFS'} ({named})"


async def _pointers(git: AskGit, entries: Sequence[Entry]) -> list[str]:
    """Without the attribute git itself would check a pointer out as it is."""
    files = [entry for entry in entries if entry.mode in (b"100644", b"100755")]
    if not await _uses_lfs(git, files):
        return []
    found: list[str] = []
    async for entry, content in read_contents(git, [entry for entry in files if entry.size in _POINTER_BYTES]):
        if _POINTER.match(content):
            found.append(entry.path)
            if len(found) > SHOWN:
                break
    return found


async def _uses_lfs(git: AskGit, files: Sequence[Entry]) -> bool:
    named = (e for e in files if e.path.rsplit("/", 1)[-1] == ".gitattributes" and e.size < _MAX_ATTRIBUTES)
    different = tuple({entry.blob: entry for entry in named}.values())
    if sum(entry.size for entry in different) > _MAX_ALL_ATTRIBUTES:
        return True
    async for _, content in read_contents(git, different):
        if _ATTRIBUTE in content:
            return True
    return False
