"""What a commit points to and does not hold: submodules, and files of git LFS."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gpurun.adapters.git.archive import file_bytes, tree_bytes
from gpurun.adapters.git.safe import require_safe
from gpurun.adapters.git.tree import FILES, GITLINK, AskGit, Entry, must, read_contents, read_entries
from gpurun.domain.errors import PinNotFound
from gpurun.domain.forge import Extra
from gpurun.domain.ids import CommitSha, TreeSha
from gpurun.domain.quantity import quoted
from gpurun.domain.source import Fetched, Gitlink

SHOWN = 5
"""Paths that a refusal names."""

_POINTER = re.compile(rb"version https://(?:git-lfs\.github\.com/spec|hawser\.github\.com/spec)/v[0-9]+\n")
_POINTER_BYTES = range(100, 1024)
"""Source: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md, read 2026-12: a pointer is less than 1,024 bytes.
Version, oid and size have 127."""
_OID = re.compile(rb"^oid sha256:([0-9a-f]{64})$", re.MULTILINE)
_SIZE = re.compile(rb"^size ([0-9]{1,15})$", re.MULTILINE)
_ATTRIBUTE = b"filter=lfs"
_MAX_ATTRIBUTES = 1024 * 1024
_MAX_ALL_ATTRIBUTES = 32 * 1024 * 1024
"""Of the different ones together. With more nobody reads them, and the pointers are looked for in any case."""
_MAX_GITMODULES = 256 * 1024


@dataclass(frozen=True, slots=True)
class LfsFile:
    """A pointer of a commit. An `oid` that is empty: it cannot be read."""

    path: str
    mode: bytes
    oid: str
    """SHA-256 of its content, 64 hex digits."""
    size: int


@dataclass(frozen=True, slots=True)
class Contents:
    """A commit's entries, and which of them are only pointers."""

    entries: tuple[Entry, ...]
    links: tuple[Entry, ...]
    lfs: tuple[LfsFile, ...]


async def summarise(
    git: AskGit,
    sha: CommitSha,
    *,
    skip: Collection[Extra],
    get: Collection[Extra],
    tree: TreeSha | None = None,
    where: str = "",
    at: str = "",
) -> Fetched:
    """What a run would get of it, in its folder `at`. `where`: of which repository, in refusals.

    Raises: PinNotFound, SourceUnavailable.
    """
    found = await read_commit(git, sha, lfs=Extra.LFS not in skip)
    require_safe(found.entries)
    require_whole(found, sha, {*skip, *get}, where=where)
    lfs = found.lfs if Extra.LFS in get else ()
    if tree is None:
        tree = TreeSha((await must(git, "rev-parse", "--verify", f"{sha}^{{tree}}")).stdout.decode().strip())
    return Fetched(
        tree=tree,
        n_bytes=tree_bytes(found.entries, folder=at)
        + sum(file_bytes(f"{at}/{file.path}" if at else file.path, file.size) for file in lfs),
        links=await read_links(git, sha, found) if Extra.SUBMODULES in get else (),
        n_lfs=len(lfs),
    )


async def read_commit(git: AskGit, sha: CommitSha, *, lfs: bool = True) -> Contents:
    """In the order of the tree. Without `lfs` nobody looks for its files. Raises SourceUnavailable."""
    entries = tuple(read_entries((await must(git, "ls-tree", "-r", "-z", "-l", "--full-tree", sha)).stdout))
    links = tuple(entry for entry in entries if entry.mode == GITLINK)
    return Contents(entries, links, tuple(await lfs_files(git, entries)) if lfs else ())


async def other_parent(git: AskGit, sha: CommitSha, head: CommitSha) -> CommitSha:
    """What a merge commit joins with `head`. Raises PinNotFound for one that is no such merge."""
    written = (await must(git, "cat-file", "commit", sha)).stdout.partition(b"\n\n")[0].decode("utf-8", "replace")
    parents = [line.split()[1] for line in written.split("\n") if line.startswith("parent ")]
    if len(parents) != 2 or head not in parents:
        raise PinNotFound(
            f"Commit {sha[:12]}, the merge of the pull request as GitHub says, does not merge its head {head[:12]}.",
            hint="The pull request has changed meanwhile. Ask again.",
        )
    return CommitSha(parents[1 - parents.index(head)])


def require_whole(found: Contents, sha: CommitSha, cared_for: Collection[Extra], *, where: str = "") -> None:
    """Raises PinNotFound when something is missing that the job neither fetches nor does without."""
    missing = {Extra.SUBMODULES: [link.path for link in found.links], Extra.LFS: [file.path for file in found.lfs]}
    told = [_told(what, paths) for what, paths in missing.items() if paths and what not in cared_for]
    if told:
        named = [what for what, paths in missing.items() if paths and what not in cared_for]
        fetch, skip = (", ".join(f"{what}: {word}" for what in named) for word in ("fetch", "skip"))
        raise PinNotFound(
            f"Commit {sha[:12]}{where} holds {' and '.join(told)}, and the job does not say what to do with them.",
            hint=f"Write `checkout: {{{fetch}}}` to get them, or `checkout: {{{skip}}}` if it does not need them.",
        )


def _told(what: Extra, paths: Sequence[str]) -> str:
    named = ", ".join(quoted(path) for path in paths[:SHOWN]) + (", …" if len(paths) > SHOWN else "")
    return f"{'submodules' if what is Extra.SUBMODULES else 'files of git LFS'} ({named})"


async def read_links(git: AskGit, sha: CommitSha, found: Contents) -> tuple[Gitlink, ...]:
    """Submodules with what `.gitmodules` says of them. Raises: PinNotFound for one that it does not name."""
    if not found.links:
        return ()
    written = await _gitmodules(git, sha, found)
    links = []
    for entry in found.links:
        name, url = written.get(entry.path, ("", ""))
        if not url:
            raise PinNotFound(
                f"Commit {sha[:12]} holds the submodule {quoted(entry.path)}, whose address is not in `.gitmodules`.",
                hint="Add it with `git submodule add`, or write `checkout: {submodules: skip}`.",
            )
        links.append(Gitlink(path=entry.path, name=name, url=url, commit=CommitSha(entry.blob.decode())))
    return tuple(links)


async def _gitmodules(git: AskGit, sha: CommitSha, found: Contents) -> dict[str, tuple[str, str]]:
    """Name and address by path."""
    entry = next((one for one in found.entries if one.path == ".gitmodules" and one.mode in FILES), None)
    if entry is None or entry.size > _MAX_GITMODULES:
        return {}
    listed = await git("config", "--null", "--list", f"--blob={sha}:.gitmodules")
    if listed.code != 0:
        raise PinNotFound(
            f"`.gitmodules` of commit {sha[:12]} cannot be read: {' '.join(listed.stderr.split())[-200:]}"
        )
    values: dict[str, dict[str, str]] = {}
    for line in listed.stdout.decode("utf-8", "surrogateescape").split("\0"):
        key, _, value = line.partition("\n")
        section, _, rest = key.partition(".")
        name, _, word = rest.rpartition(".")
        if section == "submodule" and name:
            values.setdefault(name, {})[word] = value
    return {keys.get("path", ""): (name, keys.get("url", "")) for name, keys in values.items()}


async def lfs_files(git: AskGit, entries: Sequence[Entry]) -> list[LfsFile]:
    """Without the attribute git itself would check a pointer out as it is."""
    files = [entry for entry in entries if entry.mode in FILES]
    if not await _uses_lfs(git, files):
        return []
    found = []
    async for entry, content in read_contents(git, [entry for entry in files if entry.size in _POINTER_BYTES]):
        if _POINTER.match(content):
            oid, size = _OID.search(content), _SIZE.search(content)
            known = oid and size
            found.append(
                LfsFile(
                    entry.path,
                    entry.mode,
                    oid[1].decode() if oid and known else "",
                    int(size[1]) if size and known else 0,
                )
            )
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
