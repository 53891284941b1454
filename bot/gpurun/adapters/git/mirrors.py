"""One bare mirror per repository, which holds exactly the commits that runs need."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpurun.adapters.git.archive import BLOCK, END, file_head, members
from gpurun.adapters.git.lfs import LfsStore
from gpurun.adapters.git.look import MAX_LISTED_BYTES, look_at
from gpurun.adapters.git.missing import LfsFile, other_parent, read_commit, summarise
from gpurun.adapters.git.process import PIECE_BYTES, Ended, end, isolated_environment, read_git, run_git, start_git
from gpurun.adapters.git.said import fetch_error, last_words
from gpurun.adapters.git.turns import only_writer
from gpurun.domain.errors import PinNotFound, SourceUnavailable
from gpurun.domain.forge import Extra, GitSource
from gpurun.domain.ids import CommitSha, RepoName, TreeSha
from gpurun.domain.repository import RepoFacts
from gpurun.domain.source import MAX_SOURCE_BYTES, Fetched, ModuleUrl, Submodule

# The archive is the tree, byte for byte: no attribute of the tree may drop, rewrite or convert a file.
# `info/attributes` outranks every `.gitattributes`; `git archive` reads both.
ATTRIBUTES = "* -export-ignore -export-subst -text -eol -crlf -ident -filter -working-tree-encoding\n"

_CONFIG = (
    ("core.hooksPath", os.devnull),
    ("core.attributesFile", os.devnull),
    ("core.fsync", "committed"),
    ("credential.helper", ""),
    ("fetch.fsckObjects", "true"),
    # Old but harmless shapes that GitHub itself still serves.
    ("fetch.fsck.zeroPaddedFilemode", "warn"),
    ("fetch.fsck.badTimezone", "warn"),
    ("fetch.recurseSubmodules", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    # An Authorization header must not follow a redirect to another host.
    ("http.followRedirects", "false"),
    ("protocol.version", "2"),
    ("tar.umask", "0022"),
)

# For a folder as source: commits that no ref reaches, in a checkout of another user. Variables do not get there
# (git clears GIT_CONFIG_* before it starts a local upload-pack), an option of the started program does.
LOCAL_UPLOAD_PACK = (
    "git -c uploadpack.allowAnySHA1InWant=true -c uploadpack.allowFilter=true -c 'safe.directory=*' upload-pack"
)

LOCAL_TIMEOUT_S = 30.0
_REMOTE = "source"
_MAX_HEAD_BYTES = 64 * 1024
_MAX_PACKS = 50
MAX_ARCHIVE_BYTES = MAX_SOURCE_BYTES + 64 * 1024 * 1024
"""Its ends are not counted; and there is a `.git` with older commits and their tags."""


class GitMirrors:
    """`ports.bytes.Git` in `folder`: `<folder>/<owner>/<name>.git`.

    `fetch_timeout_s` bounds one fetch over the network, `idle_timeout_s` the silence of `git archive`.
    `extra_environment` is for what the network needs (`https_proxy`, `GIT_SSL_CAINFO`).
    Fetched commits are held by `refs/gpurun/<sha>`. A submodule's mirror is `<folder>/.modules/<hash>.git`, for every
    repository that names it: its remote is asked each time, unless the source is proved. The content of LFS files lies
    beside the objects of its repository.
    """

    def __init__(
        self,
        folder: Path,
        *,
        fetch_timeout_s: float = 120.0,
        idle_timeout_s: float = 30.0,
        extra_environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._fetch_timeout_s = fetch_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._extra = dict(extra_environment or {})
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._stores: dict[Path, LfsStore] = {}

    async def fetch(
        self,
        source: GitSource,
        repo: RepoName | ModuleUrl,
        sha: CommitSha,
        *,
        skip: Collection[Extra] = (),
        get: Collection[Extra] = (),
        merge_of: CommitSha | None = None,
        at: str = "",
    ) -> Fetched:
        mirror = self._mirror(repo)
        if isinstance(repo, ModuleUrl) and not source.is_proved:
            await self._require_open(mirror, source, repo, sha)
        tree = await self._fetched(mirror, source, repo, sha)
        where = f" of {repo}" if isinstance(repo, ModuleUrl) else ""
        git = partial(self._git, mirror)
        base = None if merge_of is None else await other_parent(git, sha, merge_of)
        return replace(await summarise(git, sha, skip=skip, get=get, tree=tree, where=where, at=at), base=base)

    async def fetch_lfs(self, source: GitSource, repo: RepoName | ModuleUrl, sha: CommitSha) -> None:
        mirror = self._mirror(repo)
        found = await read_commit(partial(self._git, mirror), sha)
        given = await self._own_lfs(source) if source.url.startswith("/") else None
        asks = isinstance(repo, ModuleUrl) and not source.is_proved
        await self._lfs(mirror).fetch(source, found.lfs, given=given, asks_for_all=asks)

    async def _require_open(self, mirror: Path, source: GitSource, repo: ModuleUrl, sha: CommitSha) -> None:
        """The remote answers exactly this source's credential; what it says does not matter, and little of it is read.

        Whoever names the address of a submodule shares its mirror, so what lies there is no right to have it. Nor is a
        fetch always a question: git asks no remote for a commit whose objects it has. Raises as `fetch`.
        """
        argv = ("ls-remote", *upload_pack(source), "--", _REMOTE, "HEAD")
        try:
            done = await read_git(
                *in_folder(mirror), *argv,
                environment=self._environment(source), timeout_s=LOCAL_TIMEOUT_S, max_bytes=_MAX_HEAD_BYTES,
            )  # fmt: skip
        except TimeoutError as exc:
            raise SourceUnavailable(f"{repo} did not answer in {LOCAL_TIMEOUT_S:g} s") from exc
        if done.code != 0:
            raise fetch_error(done, source, repo, sha)

    async def _own_lfs(self, source: GitSource) -> Path:
        """Where a checkout keeps the content of its LFS files."""
        argv = ("-c", "safe.directory=*", "-C", source.url)
        told: list[str] = []
        for words in (("rev-parse", "--git-common-dir"), ("config", "--path", "--get", "lfs.storage")):
            try:
                done = await run_git(*argv, *words, environment=self._environment(), timeout_s=LOCAL_TIMEOUT_S)
            except TimeoutError as exc:
                raise SourceUnavailable(f"git in {source.url} took longer than {LOCAL_TIMEOUT_S:g} s") from exc
            told.append(os.fsdecode(done.stdout).rstrip("\n") if done.code == 0 else "")
        return Path(source.url) / told[0] / (told[1] or "lfs") / "objects"

    def _lfs(self, mirror: Path) -> LfsStore:
        return self._stores.setdefault(mirror, LfsStore(mirror / "gpurun-lfs"))

    async def _fetched(self, mirror: Path, source: GitSource, repo: RepoName | ModuleUrl, sha: CommitSha) -> TreeSha:
        async with self._locks[repo]:
            tree = await self._tree(mirror, sha)
            if tree is not None:
                return tree
            with only_writer(mirror) as lock_fd:
                await self._prepare(mirror)
                await self._fetch(mirror, source, repo, sha, lock_fd)
                await self._keep(mirror, repo, sha)
                await self._tidy(mirror)
            tree = await self._tree(mirror, sha)
        if tree is None:
            raise SourceUnavailable(f"the mirror of {repo} lost commit {sha} right after it was fetched")
        return tree

    async def archive(
        self, repo: RepoName, sha: CommitSha, *, submodules: Sequence[Submodule] = (), lfs: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Pieces of at most 256 KiB. Raises SourceUnavailable, also in the middle, when git fails or falls silent."""
        whole = self._archived(repo, sha) if not (submodules or lfs) else self._composed(repo, sha, submodules, lfs=lfs)
        n_bytes = 0
        async with contextlib.aclosing(whole):
            async for piece in whole:
                n_bytes += len(piece)
                if n_bytes > MAX_ARCHIVE_BYTES:
                    raise SourceUnavailable(f"The source of {repo} at {sha} is larger than was counted.")
                yield piece

    async def _composed(
        self, repo: RepoName, sha: CommitSha, submodules: Sequence[Submodule], *, lfs: bool
    ) -> AsyncGenerator[bytes, None]:
        """Later members take the places of earlier ones: contents those of their pointers."""
        parts: list[tuple[str, RepoName | ModuleUrl, CommitSha]] = [("", repo, sha)]
        parts += [(f"{one.path}/", ModuleUrl(one.url), one.commit) for one in submodules]
        for prefix, where, commit in parts:
            archived = self._archived(where, commit, prefix=prefix)
            async with contextlib.aclosing(archived):
                async for piece in members(archived, inner=bool(prefix)):
                    yield piece
        for prefix, where, commit in parts if lfs else ():
            mirror = self._mirror(where)
            for file in (await read_commit(partial(self._git, mirror), commit)).lfs:
                async for piece in self._content(mirror, prefix, file):
                    yield piece
        yield END

    async def _content(self, mirror: Path, prefix: str, file: LfsFile) -> AsyncIterator[bytes]:
        yield file_head(prefix + file.path, file.size, is_program=file.mode == b"100755")
        async for piece in self._lfs(mirror).open(file):
            yield piece
        if padding := -file.size % BLOCK:
            yield bytes(padding)

    async def _archived(
        self, repo: RepoName | ModuleUrl, sha: CommitSha, *, prefix: str = ""
    ) -> AsyncGenerator[bytes, None]:
        mirror = self._mirror(repo)
        process = await start_git(
            *(*in_folder(mirror), "archive", "--format=tar", *([f"--prefix={prefix}"] if prefix else [])),
            *("--end-of-options", sha),
            environment=self._environment(),
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            while piece := await asyncio.wait_for(process.stdout.read(PIECE_BYTES), self._idle_timeout_s):
                yield piece
            said = await asyncio.wait_for(process.stderr.read(), self._idle_timeout_s)
            code = await asyncio.wait_for(process.wait(), self._idle_timeout_s)
        except TimeoutError as exc:
            raise SourceUnavailable(f"git archive of {repo} at {sha} fell silent") from exc
        finally:
            await end(process)
        if code != 0:
            words = last_words(said.decode("utf-8", "replace"))
            raise SourceUnavailable(f"git archive of {repo} at {sha} failed: {words}")

    async def look(self, repo: RepoName, sha: CommitSha) -> RepoFacts:
        mirror = self._mirror(repo)
        top = await self._beginning(mirror, "ls-tree", "-z", "-l", "--full-tree", sha)
        whole = await self._beginning(mirror, "ls-tree", "-r", "-z", "-l", "--full-tree", sha)
        return await look_at(partial(self._git, mirror), top, whole)

    async def _beginning(self, mirror: Path, *argv: str) -> bytes:
        """At most MAX_LISTED_BYTES of what git prints, and no more of it is waited for."""
        try:
            done = await read_git(
                *in_folder(mirror), *argv,
                environment=self._environment(), timeout_s=LOCAL_TIMEOUT_S, max_bytes=MAX_LISTED_BYTES,
            )  # fmt: skip
        except TimeoutError as exc:
            raise SourceUnavailable(f"git {argv[0]} in {mirror} took longer than {LOCAL_TIMEOUT_S:g} s") from exc
        if done.code != 0:
            raise SourceUnavailable(f"git {argv[0]} failed in {mirror}")
        return done.stdout

    async def _tree(self, mirror: Path, sha: CommitSha) -> TreeSha | None:
        """The tree of a commit that an earlier fetch completed and kept."""
        if not _is_prepared(mirror):
            return None
        done = await self._git(mirror, "rev-parse", "--verify", "--quiet", f"refs/gpurun/{sha}^{{tree}}")
        return TreeSha(done.stdout.decode().strip()) if done.code == 0 else None

    async def _prepare(self, mirror: Path) -> None:
        """An empty mirror; one that was being made when a process died is finished."""
        if _is_prepared(mirror):
            return
        argv = ("init", "--quiet", "--bare", "--template=", "--initial-branch=gpurun", "--", str(mirror))
        try:
            done = await run_git(*argv, environment=self._environment(), timeout_s=LOCAL_TIMEOUT_S)
        except TimeoutError as exc:
            raise SourceUnavailable(f"git init of {mirror} took too long") from exc
        if done.code != 0:
            raise SourceUnavailable(f"a mirror cannot be made in {mirror.parent}: {last_words(done.stderr)}")
        await asyncio.to_thread(_write_attributes, mirror)

    async def _fetch(
        self,
        mirror: Path,
        source: GitSource,
        repo: RepoName | ModuleUrl,
        sha: CommitSha,
        lock_fd: int,
        *,
        others: Sequence[CommitSha] = (),
        options: Sequence[str] = ("--depth=1",),
    ) -> None:
        """The objects of these are in the mirror afterwards. While a child of git lives, `lock_fd` is locked."""
        argv = ["fetch", "--quiet", *options, "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"]
        argv += upload_pack(source)
        environment = self._environment(source)
        try:
            done = await run_git(
                *in_folder(mirror), *argv, "--", _REMOTE, sha, *others,
                environment=environment, timeout_s=self._fetch_timeout_s, pass_fds=(lock_fd,),
            )  # fmt: skip
        except TimeoutError as exc:
            raise SourceUnavailable(f"fetching {repo} took longer than {self._fetch_timeout_s:g} s") from exc
        if done.code != 0:
            raise fetch_error(done, source, repo, next((one for one in others if one in done.stderr), sha))

    async def _keep(self, mirror: Path, repo: RepoName | ModuleUrl, sha: CommitSha) -> None:
        """A ref, so that no clean-up drops the commit. A tag or a tree with that id is refused."""
        kind = await self._git(mirror, "cat-file", "-t", sha)
        if kind.stdout.strip() != b"commit":
            raise PinNotFound(f"{sha} is not a commit of {repo}")
        kept = await self._git(mirror, "update-ref", f"refs/gpurun/{sha}", sha)
        if kept.code != 0:
            raise SourceUnavailable(f"the mirror of {repo} cannot keep {sha}: {last_words(kept.stderr)}")

    async def _tidy(self, mirror: Path) -> None:
        """Each fetch leaves a pack; many packs make every call slow. Best effort: the next fetch tries again."""
        if _pack_count(mirror) < _MAX_PACKS:
            return
        with contextlib.suppress(TimeoutError):
            argv = ("repack", "-a", "-d", "--quiet")
            await run_git(*in_folder(mirror), *argv, environment=self._environment(), timeout_s=self._fetch_timeout_s)

    async def _git(self, mirror: Path, *argv: str, given: bytes = b"") -> Ended:
        return await self._git_with(mirror, {}, *argv, given=given)

    async def _git_with(
        self,
        mirror: Path,
        extra: Mapping[str, str],
        *argv: str,
        given: bytes = b"",
        timeout_s: float = LOCAL_TIMEOUT_S,
        pass_fds: tuple[int, ...] = (),
    ) -> Ended:
        environment = {**self._environment(), **extra}
        try:
            return await run_git(
                *in_folder(mirror), *argv,
                environment=environment, timeout_s=timeout_s, given=given, pass_fds=pass_fds,
            )  # fmt: skip
        except TimeoutError as exc:
            raise SourceUnavailable(f"git {argv[0]} in {mirror} took longer than {timeout_s:g} s") from exc

    def _environment(self, source: GitSource | None = None) -> dict[str, str]:
        config = list(_CONFIG)
        if source is not None:
            # a name, because git keeps that of a remote that it gets only parts from
            config.append((f"remote.{_REMOTE}.url", source.url))
        if source is not None and source.authorization is not None:
            config.append(("http.extraHeader", f"Authorization: {source.authorization.get_secret_value()}"))
        return isolated_environment(self._folder / ".home", config, self._extra)

    def _mirror(self, repo: RepoName | ModuleUrl) -> Path:
        if isinstance(repo, ModuleUrl):
            return self._folder / ".modules" / f"{hashlib.sha256(os.fsencode(repo)).hexdigest()[:40]}.git"
        owner, name = repo.split("/")
        if owner.startswith(".") or name in {".", ".."}:
            raise PinNotFound(f"{repo!r} is not a repository (owner/name)")
        return self._folder / owner / f"{name}.git"


def in_folder(mirror: Path) -> tuple[str, ...]:
    """That git works there, and takes paths as they are."""
    return ("--git-dir", str(mirror), "--literal-pathspecs")


def upload_pack(source: GitSource) -> tuple[str, ...]:
    """What a git that asks there has to be told."""
    return (f"--upload-pack={LOCAL_UPLOAD_PACK}",) if source.url.startswith(("/", "file://")) else ()


def _is_prepared(mirror: Path) -> bool:
    try:
        return (mirror / "info" / "attributes").read_text() == ATTRIBUTES
    except OSError:
        return False


def _pack_count(mirror: Path) -> int:
    return sum(1 for _ in mirror.glob("objects/pack/*.pack"))


def _write_attributes(mirror: Path) -> None:
    """The last step of making a mirror, so its presence says that the others are done."""
    (mirror / "info").mkdir(exist_ok=True)
    draft = mirror / "info" / "attributes.new"
    draft.write_text(ATTRIBUTES)
    draft.rename(mirror / "info" / "attributes")
