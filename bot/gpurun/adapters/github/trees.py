"""Files of a commit, by its git trees: the contents API follows links without saying so."""

from __future__ import annotations

import base64
from urllib.parse import quote

import anyio

from gpurun.adapters.github import answers, client
from gpurun.domain.errors import ForgeRefused, UserError
from gpurun.domain.folder import not_a_file
from gpurun.domain.forge import RepoFile
from gpurun.domain.ids import BranchName, CommitSha, RepoName

FILE_MODES = frozenset({"100644", "100755"})
"""Plain files in a git tree. Links are 120000, folders 040000, submodules 160000."""
FOLDER_MODE = "040000"


async def end_of(calls: client.Calls, repo: RepoName, branch: BranchName) -> CommitSha:
    """The commit at the end of the branch. A tag may have the same name, and trees by name would find that first."""
    found = await calls.get(f"/repos/{repo}/git/ref/{quote(f'heads/{branch}', safe='')}", answers.Ref)
    return CommitSha(found.object.sha)


class Trees:
    """One commit, for the length of one call: each folder is asked for once."""

    def __init__(self, calls: client.Calls, repo: RepoName, commit: CommitSha) -> None:
        self._calls = calls
        self._repo = repo
        self._commit = commit
        self._known: dict[str, answers.Tree] = {}
        self._asking: dict[str, anyio.Lock] = {}

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """None when there is nothing. Raises: UserError when it is larger than `max_bytes`, or no plain file."""
        entry = await self._find(path)
        if entry is None:
            return None
        if entry.mode not in FILE_MODES:
            raise not_a_file(path, entry.mode)
        if entry.size > max_bytes:
            raise UserError(f"{path} is {entry.size:,} bytes long; at most {max_bytes:,} are read.")
        return await self._content(entry)

    async def file(self, path: str, *, max_bytes: int) -> RepoFile | None:
        """The same without errors for a file that is too large, and for what is no plain file."""
        entry = await self._find(path)
        if entry is None or entry.mode not in FILE_MODES:
            return None
        return RepoFile(path=path, content=await self._content(entry) if entry.size <= max_bytes else None)

    async def _content(self, entry: answers.TreeEntry) -> bytes:
        blob = await self._calls.get(f"/repos/{self._repo}/git/blobs/{entry.sha}", answers.Blob)
        return base64.b64decode(blob.content)

    async def _find(self, path: str) -> answers.TreeEntry | None:
        tree_id: str = self._commit
        *folders, name = path.split("/")
        for folder in folders:
            entry = await self._entry(tree_id, folder)
            if entry is None or entry.mode != FOLDER_MODE:
                return None
            tree_id = entry.sha
        return await self._entry(tree_id, name)

    async def _entry(self, tree_id: str, name: str) -> answers.TreeEntry | None:
        async with self._asking.setdefault(tree_id, anyio.Lock()):
            tree = self._known.get(tree_id)
            if tree is None:
                tree = await self._calls.get(f"/repos/{self._repo}/git/trees/{tree_id}", answers.Tree)
                self._known[tree_id] = tree
        entry = tree.find(name)
        if entry is None and tree.truncated:
            raise ForgeRefused(f"A folder of {self._repo} has too many files for GitHub to list.", status=422)
        return entry
