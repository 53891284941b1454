"""What the forge says when it is asked about a comment: all of it reads, before anything is written.

Without `path=` the file at the top is meant. When there is none, or it has no such job, the folders of the changed
files and all above them are looked through, up to a bound that is told.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import anyio.to_thread

from gpurun.command.allow import rights_of
from gpurun.domain.command import Approve, Asking, Help, ListJobs, Retry, RunJob
from gpurun.domain.config import Job, PermissionKeys
from gpurun.domain.delivery import Delivery
from gpurun.domain.errors import CommandError, ConfigError, ForgeRefused, NotByPolicy, UserError
from gpurun.domain.folder import MAX_DEPTH, config_path, typed_folder
from gpurun.domain.forge import Permission, PullRequest, RepoFile, RepoRef
from gpurun.domain.right import Right
from gpurun.domain.run import Untrusted
from gpurun.flow import edges, failpoints
from gpurun.flow.comments import Asked, forged, outdated
from gpurun.plan.load import job_names, load, permissions_of, policy_of
from gpurun.plan.source import MAX_BYTES as CONFIG_MAX_BYTES
from gpurun.ports.forge import Forge
from gpurun.run.trust import untrusted_because

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
    rules: Mapping[str, Job] = field(default_factory=dict)
    """What the file says of each."""

    @property
    def not_by_comment(self) -> frozenset[str]:
        """Jobs whose file says that comments do not start them."""
        return frozenset(name for name, job in self.rules.items() if not job.by_comment)


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

    who: str
    """The login of whoever asks."""
    asked_at: datetime
    """When, by the forge's clock."""
    pull_request: PullRequest
    permission: Permission
    comment_id: int = 0
    """Where it was written; 0 for a button."""
    check_id: int = 0
    """Whose button was pressed; 0 for a comment."""
    forged: str = ""
    """How the comment contradicts what the webhook told of it; empty when it does not."""
    outdated: str = ""
    """Why it does not count any more; empty when it does."""
    files: Mapping[str, JobFile] = field(default_factory=dict)
    """Those that the commands name, by folder; the top under an empty name."""
    search: Search | None = None
    """None when nobody had to look further."""
    policy_text: str | None = None
    """The file at the top of the default branch."""
    policy_error: UserError | None = None
    """It could not even be fetched (too large), or its `permissions` have a fault: nobody knows what is allowed."""
    permissions: PermissionKeys = field(default_factory=PermissionKeys)
    """Of that file; where it has none, or none that can be read, those that hold without it."""
    untrusted: Untrusted | None = Untrusted.AUTHOR
    """Why nobody of the repository answers for the code. Only asked for who may do something with it."""
    more_reads: int = 0
    """Requests beyond those that every comment takes."""

    @property
    def rights(self) -> frozenset[Right]:
        """Of whoever asks, now."""
        return rights_of(self.who, self.permission, self.permissions)


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
    """The questions about one comment or one button. Each call asks anew."""

    forge: Forge
    memory: Memory

    async def __call__(self, asked: Asked, delivery: Delivery) -> Seen:
        """No files for what is not believed or does not count any more. Raises what the forge raises."""
        comment = await edges.call(
            failpoints.INTAKE_COMMENT,
            lambda: self.forge.comment(asked.repo, asked.comment_id),
            timeout_s=CALL_TIMEOUT_S,
        )
        seen = replace(
            await self._people(asked, comment.author, comment.created_at),
            comment_id=comment.id,
            forged=forged(asked, comment),
            outdated=outdated(delivery, comment),
        )
        return seen if seen.forged or seen.outdated else await self._files(asked, seen)

    async def press(self, asked: Asked, *, who: str, at: datetime, check_id: int) -> Seen:
        """The same for who has pressed a button, which is believed. Raises what the forge raises."""
        return await self._files(asked, replace(await self._people(asked, who, at), check_id=check_id))

    async def _people(self, asked: Asked, who: str, at: datetime) -> Seen:
        repo, forge = asked.repo, self.forge
        pull_request = await edges.call(
            failpoints.INTAKE_PULL_REQUEST,
            lambda: forge.pull_request(repo, asked.pr),
            timeout_s=CALL_TIMEOUT_S,
        )
        permission = await edges.call(
            failpoints.INTAKE_PERMISSION, lambda: forge.permission(repo, who), timeout_s=CALL_TIMEOUT_S
        )
        return Seen(who=who, asked_at=at, pull_request=pull_request, permission=permission)

    async def _files(self, asked: Asked, seen: Seen) -> Seen:
        repo, pull_request = asked.repo, seen.pull_request
        seen = await self._rules(asked, seen)
        runs = may_run(seen)
        folders = wanted_folders(asked, runs=runs)
        files = {folder: await self._config(repo, pull_request, folder) for folder in folders}
        deeper = sum(_depth(folder) for folder in folders) + 2 * max(0, len(folders) - 1)
        seen = replace(seen, files=files, more_reads=deeper)
        if not (runs and must_search(asked, seen)):
            return seen
        search = await self._search(repo, pull_request)
        return replace(seen, search=search, more_reads=deeper + search.reads)

    async def _rules(self, asked: Asked, seen: Seen) -> Seen:
        """What the default branch says of who may do what, and whose code it is."""
        if asked.parsed and all(isinstance(parsed, Asking | CommandError) for parsed in asked.parsed):
            return seen
        text, error = await self._policy(asked.repo, seen.pull_request)
        permissions, fault = await anyio.to_thread.run_sync(_permissions, text)
        seen = replace(seen, policy_text=text, policy_error=error or fault, permissions=permissions)
        starts = RunJob | Approve | Retry if seen.rights else Retry if _is_author(seen) else ()
        if not any(isinstance(parsed, starts) for parsed in asked.parsed):
            return seen
        return replace(seen, untrusted=await self._untrusted(asked.repo, seen))

    async def _untrusted(self, repo: RepoRef, seen: Seen) -> Untrusted | None:
        pull_request = seen.pull_request
        author: Permission | None = None
        if _is_author(seen):
            author = seen.permission
        elif not pull_request.is_fork_of(repo.name) and not pull_request.author_is_bot:
            author = await edges.call(
                failpoints.INTAKE_AUTHOR,
                lambda: self.forge.permission(repo, pull_request.author),
                timeout_s=CALL_TIMEOUT_S,
            )
        bots = await anyio.to_thread.run_sync(_bots, seen.policy_text) if pull_request.author_is_bot else ()
        return untrusted_because(pull_request, repo.name, author=author, bots=bots)

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


def may_run(seen: Seen) -> bool:
    """Who asks may run something here; others make us ask for nothing more than the jobs that help lists."""
    return Right.RUN in seen.rights and seen.pull_request.open


def wanted_folders(asked: Asked, *, runs: bool) -> tuple[str, ...]:
    """Whose file must be read: help and list show the jobs, run needs the file; errors and cancel do not."""
    wanted = RunJob | Help | ListJobs if runs else Help | ListJobs
    commands = [parsed for parsed in asked.parsed if isinstance(parsed, wanted)]
    return tuple(dict.fromkeys(one.path if isinstance(one, RunJob) else "" for one in commands))


def _is_author(seen: Seen) -> bool:
    return seen.pull_request.author.lower() == seen.who.lower()


def _permissions(text: str | None) -> tuple[PermissionKeys, UserError | None]:
    """Those of the default branch's file, and why they cannot be known."""
    try:
        return permissions_of(text), None
    except ConfigError as fault:
        unknown = NotByPolicy(
            f"The permissions of the default branch cannot be read ({fault}), so nothing is started.",
            hint="Who may merge there can correct its `.gpurun.yml`.",
        )
        return PermissionKeys(), unknown


def _bots(text: str | None) -> tuple[str, ...]:
    """Nobody when the policy has a fault, which the run then says."""
    try:
        return policy_of(text).bots
    except ConfigError:
        return ()


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
    rules = {str(name): job for name, job in config.jobs.items()}
    return JobFile(folder=folder, text=text, jobs=job_names(config), rules=rules)


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
