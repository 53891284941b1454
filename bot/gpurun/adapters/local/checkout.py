"""What git says about a checkout of the user, asked with the user's own configuration and without touching it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpurun.adapters.git.history import nearest_tags, read_history
from gpurun.adapters.git.inputs import find_inputs
from gpurun.adapters.git.missing import summarise
from gpurun.adapters.git.process import Ended, run_git
from gpurun.domain.errors import GpurunError, PinNotFound, SourceUnavailable, UserError
from gpurun.domain.folder import not_a_file
from gpurun.domain.forge import Extra, RepoFile, RepoRef
from gpurun.domain.ids import BranchName, CommitSha, RepoName, TreeSha
from gpurun.domain.plan import SetupInput
from gpurun.domain.quantity import quoted
from gpurun.domain.repository import (
    DOTENV,
    MAX_TEXT_BYTES,
    Listed,
    RepoFacts,
    names_of_variables,
    nearest,
    worth_reading,
)
from gpurun.domain.source import Fetched, Gitlink, GitTag, require_module_name

_TIMEOUT_S = 25.0
_FILE_MODES = frozenset({"100644", "100755"})
_ADD_TIMEOUT_S = 120.0
"""For `git add`, which copies new files into the repository."""
_GITHUB_URL = re.compile(
    r"(?:https?://(?:[^/@]+@)?github\.com/|(?:ssh://)?git@github\.com[:/])"
    r"(?P<owner>[A-Za-z0-9\-]{1,100})/(?P<name>[A-Za-z0-9._\-]{1,100}?)(?:\.git)?/?"
)
# A hook or another tool may have started us with these; they would point git at another place than `folder`.
_PLACES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_WORK_TREE",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalState:
    """A checkout as it is now."""

    top: Path
    """The folder that holds `.gpurun.yml`."""
    repo: RepoRef
    """Named after `origin` when that is on GitHub, else `local/<folder>`."""
    sha: CommitSha
    """HEAD."""
    branch: str | None
    """None when HEAD is detached."""
    dirty: tuple[str, ...]
    """Files that differ from HEAD or are new and not ignored; sorted, relative to `top`."""


class Checkout:
    """One checkout. `folder` may be any folder inside it.

    Raises UserError when there is no git checkout or no commit, SourceUnavailable when git fails or hangs.
    """

    def __init__(self, folder: Path, *, private: Path | None = None) -> None:
        """`private`: one more file that stays out of snapshots, beside `.env` at the top."""
        self._folder = folder
        self._private = private
        self._top: Path | None = None

    async def state(self) -> LocalState:
        """Reads only; the user's index is not even refreshed."""
        top = await self.top()
        options = (
            "--branch",
            "--no-ahead-behind",
            "-z",
            "--no-renames",
            "--untracked-files=all",
            "--ignore-submodules=dirty",
        )
        status = await self._must(top, "--no-optional-locks", "status", "--porcelain=v2", *options)
        headers, changed, untracked = _parsed(status.stdout)
        if headers["branch.oid"] == "(initial)":
            raise UserError(f"{top} has no commit yet.", hint="Commit your files, then run this again.")
        origin = await self._ask(top, "config", "--get", "remote.origin.url")
        branch = headers["branch.head"]
        return LocalState(
            top=top,
            repo=RepoRef(installation_id=0, name=_repo_name(_text(origin), top), id=0),
            sha=CommitSha(headers["branch.oid"]),
            branch=None if branch == "(detached)" else branch,
            dirty=tuple(name for name in changed if name not in untracked or name not in self._private_names(top)),
        )

    async def top(self) -> Path:
        """The root of the working tree; it does not move."""
        if self._top is None:
            self._top = await self._find_top()
        return self._top

    async def _find_top(self) -> Path:
        if not self._folder.is_absolute():
            try:
                Path.cwd()
            except FileNotFoundError as error:
                raise UserError("The current folder was deleted.", hint="`cd` to one that is there.") from error
        if not self._folder.is_dir():
            raise UserError(f"{self._folder} is not a folder.")
        found = await self._ask(self._folder, "rev-parse", "--show-toplevel")
        if found.code != 0:
            raise _no_checkout(self._folder.resolve(), found.stderr)
        return Path(os.fsdecode(found.stdout.removesuffix(b"\n")))

    async def read_file(self, sha: CommitSha | BranchName, path: str, *, max_bytes: int) -> bytes | None:
        """None when there is none. UserError when it is larger than `max_bytes`, or a link or a folder stands there."""
        at = sha if isinstance(sha, CommitSha) else f"refs/heads/{sha}"  # a tag may have the name of a branch
        entries = await self._entries_at(at, [path])
        if path not in entries:
            return None
        mode, blob, size = entries[path]
        if mode not in _FILE_MODES:
            raise not_a_file(path, mode)
        if size > max_bytes:
            raise UserError(f"{path} at {sha} has {size} bytes; at most {max_bytes} are read.")
        return await self._blob(blob)

    async def read_files(
        self, at: CommitSha | BranchName, paths: Sequence[str], *, max_bytes: int
    ) -> tuple[RepoFile, ...]:
        """Those that are regular files there, in the order of `paths`."""
        there = await self._entries_at(at if isinstance(at, CommitSha) else f"refs/heads/{at}", paths)
        found = [(path, *there[path]) for path in paths if path in there]
        return tuple(
            [
                RepoFile(path=path, content=await self._blob(blob) if size <= max_bytes else None)
                for path, mode, blob, size in found
                if mode in _FILE_MODES
            ]
        )

    async def _entries_at(self, at: str, paths: Sequence[str]) -> dict[str, tuple[str, str, int]]:
        """Mode, object and size of each path that is there."""
        good = [path for path in paths if not any(part in {"", ".", ".."} for part in path.split("/"))]
        if not good:
            return {}
        listed = await self._must(await self.top(), "ls-tree", "-z", "-l", "--full-tree", at, "--", *good)
        entries: dict[str, tuple[str, str, int]] = {}
        for entry in filter(None, listed.stdout.split(b"\0")):
            meta, name = entry.split(b"\t", 1)
            mode, _, blob, size = meta.decode().split()
            entries[os.fsdecode(name)] = (mode, blob, 0 if size == "-" else int(size))
        return entries

    async def _blob(self, blob: str) -> bytes:
        return (await self._must(await self.top(), "cat-file", "blob", blob)).stdout

    async def look(self, folder: str = "") -> RepoFacts:
        """What the working tree says of itself, new files included and ignored ones not. Reads only, and no links.

        Of that folder alone, with paths relative to it; empty for the top. Of `.env` at the top there are names only.
        """
        top = await self.top()
        listed = await self._must(
            top, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", "--", folder or "."
        )
        start = f"{folder}/" if folder else ""
        named = (os.fsdecode(path) for path in listed.stdout.split(b"\0") if path)
        paths = (path.removeprefix(start) for path in named if path.startswith(start))
        below = top / folder
        near, is_cut = nearest(Listed(path, 0) for path in paths)
        there = await asyncio.to_thread(lambda: tuple(filter(None, (_listed(below, one.path) for one in near))))
        texts = await asyncio.to_thread(
            lambda: {one.path: text for one in worth_reading(there) if (text := _read(below / one.path, one.size))}
        )
        dotenv = names_of_variables(await asyncio.to_thread(_read, top / DOTENV, MAX_TEXT_BYTES))
        return RepoFacts(paths=tuple(one.path for one in there), texts=texts, is_cut=is_cut, dotenv=dotenv)

    async def ignores(self, path: str) -> bool:
        """Whether `git add` passes that plain file name by."""
        argv = ("check-ignore", "--quiet", "--", path)
        # it knows no literal pathspecs; this path has nothing special in it
        return (await self._ask(await self.top(), *argv, extra={"GIT_LITERAL_PATHSPECS": "0"})).code == 0

    async def tracks(self, path: str) -> bool:
        """Whether the next commit has that file, as far as it is staged."""
        top = await self.top()
        return (await self._must(top, "ls-files", "-z", "--cached", "--", path)).stdout != b""

    async def snapshot(self, *, max_bytes: int) -> CommitSha:
        """A commit on top of HEAD that holds the working tree, new files included and ignored ones not. A file of
        secrets that git does not track stays out of it.

        No branch, index or stash of the user changes; the commit is reached by nothing and `git gc` takes it away
        some weeks later. Equal files on an equal HEAD give an equal id. UserError when the changed files have more
        than `max_bytes` in all.
        """
        state = await self.state()
        _refuse_large(state, max_bytes)
        with tempfile.TemporaryDirectory(prefix="gpurun-index-") as folder:
            index = Path(folder) / "index"
            await self._copy_index(state.top, index)
            extra = {"GIT_INDEX_FILE": str(index)}
            argv = ("-c", "advice.addEmbeddedRepo=false", "add", "--all", "--", ".")
            added = await self._ask(state.top, *argv, extra=extra, timeout_s=_ADD_TIMEOUT_S)
            if added.code != 0:
                raise _not_added(state.top, added.stderr)
            await self._leave_out(state, extra)
            tree = _text(await self._must(state.top, "write-tree", extra=extra))
        return await self._commit(state, tree)

    async def _leave_out(self, state: LocalState, extra: dict[str, str]) -> None:
        """What HEAD has is no secret any more."""
        for name in self._private_names(state.top):
            if not (await self._must(state.top, "ls-tree", "--full-tree", state.sha, "--", name)).stdout:
                argv = ("rm", "-q", "--cached", "--ignore-unmatch", "--", name)
                await self._must(state.top, *argv, extra=extra)

    def _private_names(self, top: Path) -> frozenset[str]:
        """Relative to the top."""
        names = {DOTENV}
        if self._private is not None:
            with contextlib.suppress(ValueError):  # it lies outside
                names.add(str(self._private.resolve().relative_to(top.resolve())))
        return frozenset(names)

    async def _copy_index(self, top: Path, index: Path) -> None:
        """The user's index spares hashing every unchanged file; without one git starts from nothing."""
        theirs = _text(await self._must(top, "rev-parse", "--git-path", "index"))
        source = top / theirs
        if source.exists():
            shutil.copy2(source, index)  # with its time: git looks again into files that changed at the same moment

    async def _commit(self, state: LocalState, tree: str) -> CommitSha:
        """Fixed names, and HEAD's date, so that the id depends on the content alone."""
        date = _text(await self._must(state.top, "show", "-s", "--format=%cI", state.sha))
        who = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in (("NAME", "gpurun"), ("EMAIL", "gpurun@localhost"), ("DATE", date))
        }
        message = f"Working tree on top of {state.sha}"
        argv = ("-c", "commit.gpgSign=false", "-c", "i18n.commitEncoding=utf-8", "commit-tree", "--no-gpg-sign")
        done = await self._must(state.top, *argv, "-p", state.sha, "-m", message, tree, extra=who)
        return CommitSha(_text(done))

    async def commit_of(self, typed: str) -> CommitSha:
        """What git takes the words for: an id, a branch, `HEAD~2`. Raises UserError when it is no commit here."""
        top = await self.top()
        argv = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{typed}^{{commit}}")
        found = await self._ask(top, *argv)
        if found.code != 0:
            raise UserError(
                f"{quoted(typed)} is no commit, branch or tag of this checkout.",
                hint="`git log --oneline --all` shows what is here; `git fetch` gets what is not.",
            )
        return CommitSha(_text(found))

    async def tree_of(self, sha: CommitSha) -> TreeSha:
        """The tree of a commit that is here."""
        return TreeSha(_text(await self._must(await self.top(), "rev-parse", "--verify", f"{sha}^{{tree}}")))

    async def contents(self, sha: CommitSha, *, skip: Collection[Extra], get: Collection[Extra]) -> Fetched:
        """What a fetch of the commit would find. Raises PinNotFound when a run would."""
        folder = self._folder  # of a submodule without a working tree, too

        async def git(*argv: str, given: bytes = b"") -> Ended:
            return await self._ask(folder, *argv, given=given)

        return await summarise(git, sha, skip=skip, get=get)

    async def inputs(self, sha: CommitSha, folder: str, patterns: Sequence[str]) -> tuple[SetupInput, ...]:
        """What `setup_inputs` mean. Raises NoSuchInput, PinNotFound."""
        here = self._folder

        async def git(*argv: str, given: bytes = b"") -> Ended:
            return await self._ask(here, *argv, given=given)

        return await find_inputs(git, sha, folder, patterns)

    async def tags(self, sha: CommitSha) -> tuple[GitTag, ...]:
        """Those that a run's `.git` would hold."""
        folder = self._folder

        async def git(*argv: str, given: bytes = b"") -> Ended:
            return await self._ask(folder, *argv, given=given)

        listed = (await git("show-ref", "--tags", "--dereference")).stdout  # fails when there is none
        return nearest_tags(listed.replace(b" ", b"\t"), await read_history(git, sha))

    async def submodule(self, link: Gitlink) -> Path:
        """Where git has it on this machine: its working tree, or what git keeps without one. Raises PinNotFound."""
        top = await self.top()
        tree = top / link.path
        if (tree / ".git").exists():
            return tree
        above = Path(link.above) if link.above else top
        asked = ("rev-parse", "--git-path", f"modules/{require_module_name(link.name)}")
        kept = above / os.fsdecode((await self._must(above, *asked)).stdout.removesuffix(b"\n"))
        if (kept / "HEAD").exists():
            return kept
        raise PinNotFound(
            f"The submodule {quoted(link.path)} is not in this checkout.",
            hint="`git submodule update --init --recursive` gets it.",
        )

    async def _must(
        self, folder: Path, *argv: str, extra: dict[str, str] | None = None, timeout_s: float = _TIMEOUT_S
    ) -> Ended:
        done = await self._ask(folder, *argv, extra=extra, timeout_s=timeout_s)
        if done.code != 0:
            raise _failed(folder, done.stderr)
        return done

    async def _ask(
        self,
        folder: Path,
        *argv: str,
        extra: dict[str, str] | None = None,
        timeout_s: float = _TIMEOUT_S,
        given: bytes = b"",
    ) -> Ended:
        # The user's git configuration (safe.directory, excludesFile, filters) lives in the environment.
        inherited = os.environ  # noqa: TID251
        environment = {key: value for key, value in inherited.items() if key not in _PLACES}
        environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_LITERAL_PATHSPECS": "1"} | (extra or {})
        try:
            return await run_git("-C", str(folder), *argv, environment=environment, timeout_s=timeout_s, given=given)
        except TimeoutError as exc:
            raise SourceUnavailable(f"git in {folder} took longer than {timeout_s:g} s") from exc


def _failed(folder: Path, said: str) -> SourceUnavailable:
    return SourceUnavailable(f"git failed in {folder}: {' '.join(said.split())[-300:]}")


def _no_checkout(folder: Path, said: str) -> UserError:
    """What git says is told only when it is more than that."""
    if "not a git repository (or any" in said:
        return UserError(
            f"{folder} is not inside a git checkout.",
            hint="Run gpurun in a clone of your repository, or `git init` and commit here.",
        )
    return UserError(f"git does not take {folder} for a checkout.", hint=f"It says: {' '.join(said.split())[-600:]}")


def _not_added(top: Path, said: str) -> GpurunError:
    """A file that git could not read is the person's to mend."""
    unread = _UNREAD.search(said)
    if unread is None:
        return _failed(top, said)
    path = unread["path"]
    return UserError(
        f"{path} cannot be read: {unread['why']}.",
        hint=f"What git does not ignore is part of the run. `chmod u+r {shlex.quote(path)}` in {top} lets you read it; "
        "or add it to .gitignore.",
    )


_UNREAD = re.compile(r'^error: open\("(?P<path>.+)"\): (?P<why>.+)$', re.MULTILINE)
_FIELDS_BEFORE_PATH = {b"1": 8, b"u": 10, b"?": 1}
"""By the first word of an entry. Source: git-status(1), "Porcelain Format Version 2", read 2026-01."""


def _parsed(status: bytes) -> tuple[dict[str, str], tuple[str, ...], frozenset[str]]:
    """Headers (`branch.oid`, `branch.head`), the changed paths, sorted, and which of them git does not track."""
    headers: dict[str, str] = {}
    changed = []
    untracked = set()
    for entry in filter(None, status.split(b"\0")):
        kind, rest = entry.split(b" ", 1)
        if kind == b"#":
            name, _, value = os.fsdecode(rest).partition(" ")
            headers[name] = value
        else:
            changed.append(os.fsdecode(entry.split(b" ", _FIELDS_BEFORE_PATH[kind])[-1]))
            if kind == b"?":
                untracked.add(changed[-1])
    return headers, tuple(sorted(changed)), frozenset(untracked)


def _text(done: Ended) -> str:
    return done.stdout.decode("utf-8", "replace").strip()


def _repo_name(origin_url: str, top: Path) -> RepoName:
    match = _GITHUB_URL.fullmatch(origin_url)
    if match and match["name"] not in {".", ".."}:
        return RepoName(f"{match['owner']}/{match['name']}")
    folder = re.sub(r"[^A-Za-z0-9._-]+", "-", top.name).strip(".-")[:100]
    return RepoName(f"local/{folder or 'checkout'}")


def _refuse_large(state: LocalState, max_bytes: int) -> None:
    """Git would copy every new file into the repository: a forgotten checkpoint folder must not end up there."""
    sizes = {name: _size(state.top / name) for name in state.dirty}
    if sum(sizes.values()) <= max_bytes:
        return
    largest = max(sizes, key=lambda name: sizes[name])
    raise UserError(
        f"The changed files have {sum(sizes.values()) >> 20} MiB in all, more than {max_bytes >> 20} MiB; "
        f"the largest is {largest!r} with {sizes[largest] >> 20} MiB.",
        hint="Add what the job does not need to .gitignore, or commit and run the commit.",
    )


def _listed(top: Path, path: str) -> Listed | None:
    """None for what is no regular file, or not there any more."""
    try:
        found = (top / path).lstat()
    except OSError:
        return None
    return Listed(path, found.st_size) if stat.S_ISREG(found.st_mode) else None


def _read(path: Path, max_bytes: int) -> str:
    """Empty when it is not there any more, or something else now."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read(max_bytes).decode("utf-8", "replace")
    except OSError:
        return ""


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
