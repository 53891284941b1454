"""What the forge says when it is asked about a comment: all of it reads, before anything is written.

Without `path=` the file at the top is meant. When there is none, or it has no such job, the folders of the changed
files and all above them are looked through, up to a bound that is told.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import anyio.to_thread

from gpurun.domain.command import Help, RunJob
from gpurun.domain.delivery import Delivery
from gpurun.domain.errors import ConfigError, ForgeRefused, UserError
from gpurun.domain.folder import MAX_DEPTH, config_path, typed_folder
from gpurun.domain.forge import Comment, Permission, PullRequest, RepoFile, RepoRef
from gpurun.flow import edges, failpoints
from gpurun.flow.comments import Asked, forged, outdated
from gpurun.plan.load import job_names, load
from gpurun.ports.forge import Forge

CONFIG_MAX_BYTES = 64 * 1024
CALL_TIMEOUT_S = 30.0
MAX_FOLDERS = 40
"""That are looked through: each costs a request, and anybody who may run a job can ask for it."""
FILES_A_REQUEST = 100
TOO_MUCH = 422
"""GitHub cannot list what was asked for."""
REMEMBERED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """One `.gpurun.yml` at the head."""

    folder: str
    """From the top of the repository; empty for the top."""
    text: str | None
    """None when there is no such file."""
    error: UserError | None = None
    """It could not even be fetched (too large, or a symbolic link)."""
    jobs: tuple[str, ...] = ()
    """Empty when there is no usable file (the run's check then says why)."""
    not_by_comment: frozenset[str] = frozenset()
    """Jobs whose file says that comments do not start them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What was found in the folders that the pull request touches."""

    files: tuple[JobFile, ...] = ()
    """Nearest to the top first; the top's own is not among them."""
    all_seen: bool = True
    """False: there are more folders than are looked through."""
    reads: int = 0
    """Requests that it took, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the forge said."""

    comment: Comment
    pull_request: PullRequest
    permission: Permission
    files: Mapping[str, JobFile] = field(default_factory=dict)
    """Those that the commands name, by folder; the top under an empty name."""
    search: Search | None = None
    """None when nobody had to look further."""
    policy_text: str | None = None
    """The file at the top of the default branch."""
    policy_error: UserError | None = None
    """It could not even be fetched (too large), so nobody knows what is allowed."""
    more_reads: int = 0
    """Requests beyond those that every comment takes."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Where files were found: a commit never changes, and a second command need not look through the folders again.

    Of this process alone, and nothing depends on it.
    """

    _found: OrderedDict[tuple[int, int, str, str], tuple[tuple[str, ...], bool]] = field(default_factory=OrderedDict)

    def recall(self, repo: RepoRef, pull_request: PullRequest) -> tuple[tuple[str, ...], bool] | None:
        """The folders with a file and whether those are all, when that was asked for before."""
        return self._found.get(_key(repo, pull_request))

    def keep(self, repo: RepoRef, pull_request: PullRequest, folders: tuple[str, ...], all_seen: bool) -> None:  # noqa: FBT001
        """The oldest is forgotten."""
        self._found[_key(repo, pull_request)] = folders, all_seen
        while len(self._found) > REMEMBERED:
            self._found.popitem(last=False)


def _key(repo: RepoRef, pull_request: PullRequest) -> tuple[int, int, str, str]:
    return repo.id, pull_request.number, pull_request.base_sha, pull_request.head_sha


@dataclass(frozen=True, slots=True)
class Look:
    """The questions about one comment. Each `__call__` asks anew."""

    forge: Forge
    memory: Memory

    async def __call__(self, asked: Asked, delivery: Delivery) -> Seen:
        """No files for what is not believed or does not count any more. Raises what the forge raises."""
        repo, forge = asked.repo, self.forge
        comment = await edges.call(
            failpoints.INTAKE_COMMENT, lambda: forge.comment(repo, asked.event.comment.id), timeout_s=CALL_TIMEOUT_S
        )
        pull_request = await edges.call(
            failpoints.INTAKE_PULL_REQUEST,
            lambda: forge.pull_request(repo, asked.event.issue.number),
            timeout_s=CALL_TIMEOUT_S,
        )
        permission = await edges.call(
            failpoints.INTAKE_PERMISSION, lambda: forge.permission(repo, comment.author), timeout_s=CALL_TIMEOUT_S
        )
        seen = Seen(comment=comment, pull_request=pull_request, permission=permission)
        if forged(asked, comment) or outdated(delivery, comment):
            return seen
        return await self._files(asked, seen)

    async def _files(self, asked: Asked, seen: Seen) -> Seen:
        repo, pull_request = asked.repo, seen.pull_request
        runs = may_run(asked, seen)
        folders = wanted_folders(asked, runs=runs)
        files = {folder: await self._config(repo, pull_request, folder) for folder in folders}
        policy_text, policy_error = (
            await self._policy(repo, pull_request) if runs and wants_run(asked) else (None, None)
        )
        deeper = sum(_depth(folder) for folder in folders) + 2 * max(0, len(folders) - 1)
        seen = replace(seen, files=files, policy_text=policy_text, policy_error=policy_error, more_reads=deeper)
        if not (runs and must_search(asked, seen)):
            return seen
        search = await self._search(repo, pull_request)
        return replace(seen, search=search, more_reads=deeper + search.reads)

    async def _config(self, repo: RepoRef, pull_request: PullRequest, folder: str) -> JobFile:
        path = config_path(folder)
        try:
            raw = await edges.call(
                failpoints.INTAKE_CONFIG,
                lambda: self.forge.read_file(repo, pull_request.head_sha, path, max_bytes=CONFIG_MAX_BYTES),
                timeout_s=CALL_TIMEOUT_S,
            )
        except UserError as error:
            return JobFile(folder=folder, text=None, error=error)
        return await anyio.to_thread.run_sync(job_file, folder, raw)

    async def _policy(self, repo: RepoRef, pull_request: PullRequest) -> tuple[str | None, UserError | None]:
        """The default branch's file, or why it cannot be had."""
        branch = pull_request.default_branch
        try:
            raw = await edges.call(
                failpoints.INTAKE_POLICY,
                lambda: self.forge.read_file(repo, branch, config_path(""), max_bytes=CONFIG_MAX_BYTES),
                timeout_s=CALL_TIMEOUT_S,
            )
        except UserError as error:
            return None, error
        return (None if raw is None else raw.decode("utf-8", "surrogateescape")), None

    async def _search(self, repo: RepoRef, pull_request: PullRequest) -> Search:
        known = self.memory.recall(repo, pull_request)
        if known is not None:
            folders, all_seen = known
            reads = 0
        else:
            folders, all_seen, reads = await self._touched(repo, pull_request)
        found = await self._there(repo, pull_request, folders) if folders else ()
        self.memory.keep(repo, pull_request, tuple(_folder_of(file) for file in found), all_seen)
        read = await anyio.to_thread.run_sync(lambda: tuple(map(_found_file, found)))
        passed = {part for folder in folders for part in _with_those_above(folder)}
        return Search(files=read, all_seen=all_seen, reads=reads + 1 + len(passed) + len(found))

    async def _touched(self, repo: RepoRef, pull_request: PullRequest) -> tuple[tuple[str, ...], bool, int]:
        """Folders worth a look, whether those are all, and how many requests it took."""
        try:
            changed = await edges.call(
                failpoints.INTAKE_CHANGED_FILES,
                lambda: self.forge.changed_files(repo, pull_request.number),
                timeout_s=CALL_TIMEOUT_S,
            )
        except ForgeRefused as refused:
            if refused.status != TOO_MUCH:
                raise
            return (), False, 1
        folders = await anyio.to_thread.run_sync(touched_folders, changed.paths)
        all_there = changed.all_there and len(folders) <= MAX_FOLDERS
        return folders[:MAX_FOLDERS], all_there, len(changed.paths) // FILES_A_REQUEST + 1

    async def _there(self, repo: RepoRef, pull_request: PullRequest, folders: tuple[str, ...]) -> tuple[RepoFile, ...]:
        paths = tuple(config_path(folder) for folder in folders)
        return await edges.call(
            failpoints.INTAKE_FILES,
            lambda: self.forge.read_files(repo, pull_request.head_sha, paths, max_bytes=CONFIG_MAX_BYTES),
            timeout_s=CALL_TIMEOUT_S,
        )


def may_run(asked: Asked, seen: Seen) -> bool:
    """Who asks may run something here; others make us ask for nothing more than the jobs that help lists."""
    pull_request = seen.pull_request
    return seen.permission.push and pull_request.open and not pull_request.is_fork_of(asked.repo.name)


def wanted_folders(asked: Asked, *, runs: bool) -> tuple[str, ...]:
    """Whose file must be read: help lists the jobs, run needs the file; errors and cancel do not."""
    wanted = RunJob | Help if runs else Help
    commands = [parsed for parsed in asked.parsed if isinstance(parsed, wanted)]
    return tuple(dict.fromkeys(one.path if isinstance(one, RunJob) else "" for one in commands))


def wants_run(asked: Asked) -> bool:
    """What runs is bound by a policy."""
    return any(isinstance(parsed, RunJob) for parsed in asked.parsed)


def must_search(asked: Asked, seen: Seen) -> bool:
    """The file at the top is not enough."""
    top = seen.files.get("")
    if top is None or top.error is not None:
        return False
    if top.text is None:
        return True
    jobs = [parsed.job for parsed in asked.parsed if isinstance(parsed, RunJob) and not parsed.path]
    return bool(top.jobs) and any(job not in top.jobs for job in jobs)


def touched_folders(paths: Iterable[str]) -> tuple[str, ...]:
    """Folders of these files and all above them but the top, as far as they can be typed; the highest first."""
    folders: set[str] = set()
    for path in paths:
        folders.update(_with_those_above("/".join(path.split("/", MAX_DEPTH + 1)[:-1][:MAX_DEPTH])))
    return tuple(sorted(filter(_can_be_typed, folders), key=lambda folder: (_depth(folder), folder)))


def job_file(folder: str, raw: bytes | None) -> JobFile:
    """What the file says of its jobs."""
    if raw is None:
        return JobFile(folder=folder, text=None)
    # Undecodable bytes become lone surrogates, which `plan.load` reports with their position.
    text = raw.decode("utf-8", "surrogateescape")
    try:
        config = load(text)
    except ConfigError:
        return JobFile(folder=folder, text=text)
    silent = frozenset(name for name, job in config.jobs.items() if not job.by_comment)
    return JobFile(folder=folder, text=text, jobs=job_names(config), not_by_comment=silent)


def _found_file(file: RepoFile) -> JobFile:
    folder = _folder_of(file)
    if file.content is None:
        too_large = UserError(f"{file.path} is larger than the {CONFIG_MAX_BYTES:,} bytes that are read.")
        return JobFile(folder=folder, text=None, error=too_large)
    return job_file(folder, file.content)


def _folder_of(file: RepoFile) -> str:
    return file.path.rpartition("/")[0]


def _with_those_above(folder: str) -> list[str]:
    parts = folder.split("/") if folder else []
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def _can_be_typed(folder: str) -> bool:
    try:
        return typed_folder(folder) == folder
    except ValueError:
        return False


def _depth(folder: str) -> int:
    return folder.count("/") + 1 if folder else 0
