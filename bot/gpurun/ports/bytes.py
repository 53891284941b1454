"""Where bytes come from and stay: git mirror, model hub, image registry, blob store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pydantic import SecretStr

from gpurun.domain.forge import Extra, GitSource
from gpurun.domain.ids import CommitSha, ImageRef, RepoName, Revision
from gpurun.domain.image import RegistryLogin, SeenImage
from gpurun.domain.lock import ImagePin, LockedImage
from gpurun.domain.plan import HubKind, ModelFile, ModelPin, ModelSpec, SetupInput
from gpurun.domain.repository import RepoFacts
from gpurun.domain.source import Fetched, GitTag, ModuleUrl, Submodule


class Git(Protocol):
    """A bare mirror on the bot's disk."""

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
        """The exact commit is in the mirror afterwards. Idempotent. With `merge_of` it must be a merge of that commit.

        `at`: the folder of the run's source where it will lie, whose name counts for every file of it.
        What the commit points to is not fetched, but listed as far as it is in `get`. Raises: PinNotFound (the remote
        has no such commit, or it points to something that is neither in `get` nor in `skip`), SourceUnavailable.
        """
        ...

    async def fetch_lfs(self, source: GitSource, repo: RepoName | ModuleUrl, sha: CommitSha) -> None:
        """The content of every LFS file of a fetched commit is here afterwards, verified. Idempotent; goes on where a
        call before ended. Raises: PinNotFound naming the file, SourceUnavailable.
        """
        ...

    async def look(self, repo: RepoName, sha: CommitSha) -> RepoFacts:
        """What the tree says of the repository, bounded. Needs `fetch` before. Raises: SourceUnavailable."""
        ...

    async def fetch_history(self, source: GitSource, repo: RepoName, sha: CommitSha) -> tuple[GitTag, ...]:
        """The commits behind a fetched commit, without their contents, and the nearest tags. Idempotent, but for tags,
        which can move. Raises: PinNotFound, SourceUnavailable.
        """
        ...

    async def inputs(
        self, repo: RepoName, sha: CommitSha, folder: str, patterns: Sequence[str]
    ) -> tuple[SetupInput, ...]:
        """The files below `folder` that patterns of `setup_inputs` mean. Needs `fetch` before.

        Raises: NoSuchInput, PinNotFound for too many, SourceUnavailable.
        """
        ...

    def git_folder(
        self, repo: RepoName, sha: CommitSha, tags: Sequence[GitTag], *, lfs: bool = False
    ) -> AsyncIterator[bytes]:
        """A tar stream of a `.git` for the work folder. Needs `fetch_history` before."""
        ...

    def archive(
        self, repo: RepoName, sha: CommitSha, *, submodules: Sequence[Submodule] = (), lfs: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """A tar stream of the tree, with the commit id in its global pax header. Needs `fetch` before.

        With submodules in their places, and with `lfs` the content of LFS files. Later members replace earlier ones.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """How far files are in the bot's cache."""

    bytes_total: int
    """Of all files; one that several pins of a repository have counts once, as it is downloaded once."""
    bytes_missing: int
    """Still to be downloaded."""
    files_missing: int
    """Not verified yet."""
    folder: str = ""
    """Where `lay_out` has them as a hub cache, to be mounted read-only; empty until then."""

    @property
    def ready(self) -> bool:
        """All files are there and right."""
        return not self.files_missing


@dataclass(frozen=True, slots=True)
class SaidBefore:
    """What the hub answers, or answered to the same question on another day."""

    pin: ModelPin
    on: str
    """A day, `2026-12-01`; empty: it was asked now."""


class Hub(Protocol):
    """The Hugging Face Hub or a mirror of it."""

    async def resolve(self, spec: ModelSpec) -> ModelPin:
        """The file list with sizes and hashes at exactly that revision.

        Raises: PinNotFound (repository, revision or access), HubUnavailable; HubSilent when nobody answered.
        """
        ...

    async def resolve_or_recall(self, spec: ModelSpec) -> SaidBefore:
        """`resolve`, and when nobody answers what it last returned for it on this machine: access may be lost since.

        Raises: as `resolve`; HubSilent also when there was no answer before.
        """
        ...

    async def revision_of(self, model_id: str, ref: str, *, kind: HubKind = "model") -> Revision:
        """The commit that a branch or tag points to now, or that starts with these 7 to 40 hex digits.

        Says nothing about access to the files: a gated model shows its commits to everybody, and `resolve` asks.

        Raises: PinNotFound (repository, ref or access), HubUnavailable.
        """
        ...

    async def require_open(self, spec: ModelSpec, *, gated_too: bool) -> None:
        """Asks without a token: everybody may download it; with `gated_too`, everybody may see its list of files, as
        that of a gated model.

        Raises: PinNotFound, HubUnavailable; HubSilent when nobody answered.
        """
        ...

    async def prefetch(self, pins: Sequence[ModelPin], wait_s: float) -> Preparation:
        """Brings all files of the pins, verified, into the bot's cache, as far as that goes in `wait_s`.

        Call it until it says `ready`: each call goes on where the last one stopped, whoever made it. Of several calls
        for one file, in this process or another one, one downloads it and the others wait for it.

        Raises: PinNotFound naming a file whose bytes were wrong twice, HubUnavailable (also for a disk that has no room
        for all of them).
        """
        ...

    async def lay_out(self, pins: Sequence[ModelPin], *, user: str, until: datetime, wait_s: float) -> Preparation:
        """`prefetch`, which goes on between the calls, and at its end a folder that looks like a hub cache.

        All bytes in it were hashed by this process. Nothing of the pins is removed from the cache until `unuse(user)`,
        or, when that never comes, some time after `until`. `user` is an attempt's id.

        Raises: as `prefetch`.
        """
        ...

    async def unuse(self, user: str) -> None:
        """That attempt is over for good. Silent when it used nothing."""
        ...

    async def users(self) -> frozenset[str]:
        """Attempts that use something, as far as nobody let them go."""
        ...

    async def tidy(self, over: Collection[str] = ()) -> None:
        """Lets those attempts go. Then removes leftovers, and what the cache has too much of: the least recently used
        first, and nothing that somebody uses.
        """
        ...

    async def signed_url(self, pin: ModelPin, file: ModelFile) -> SecretStr | None:
        """Where whoever has this address gets the file's bytes for a short time, unverified and without a token.

        None when the hub gives such files only itself, or the bot has the bytes already.

        Raises: PinNotFound, HubUnavailable.
        """
        ...

    def open(self, pin: ModelPin, file: ModelFile, *, offset: int = 0) -> AsyncIterator[bytes]:
        """The file's bytes from `offset`, from the bot's verified cache when it is there, else while it is downloaded.

        Raises: PinNotFound naming the file when the bytes are not what `file.sha256` says (at the end of the
        stream, and the cache keeps nothing), HubUnavailable.
        """
        ...


class Images(Protocol):
    """The registry API, without a container engine."""

    async def confirm(
        self, image: ImageRef, *, locked: LockedImage | None = None, login: RegistryLogin | None = None
    ) -> SeenImage:
        """The registry has exactly this digest, and shows it to that login.

        `locked`: the entry that pins it, which may know its platforms; otherwise they are asked for. Where its tag
        points to now is asked for beside, in one request.

        Without a login: to whom the bot is at that registry. Nothing that another login may read is remembered.

        Raises: PinNotFound (no such manifest, no access, or a login that is refused), RegistryUnavailable;
        RegistrySilent when nobody answered.
        """
        ...

    async def pin(self, name: str, tag: str, *, login: RegistryLogin | None = None) -> ImagePin:
        """What the tag of `ghcr.io/org/app` points to now, hashed from the bytes that came.

        Attestations, which no engine runs, are not among its platforms. Engines take the first of two manifests for
        one platform, and so does this.

        Raises: PinNotFound (no such repository or tag, no access, or no image), RegistryUnavailable.
        """
        ...


class Blobs(Protocol):
    """A store of immutable byte strings by key; a local folder by default."""

    async def append(self, key: str, offset: int, data: bytes) -> int:
        """Durable append at `offset`; returns the new size. WrongOffset when the end is elsewhere."""
        ...

    async def put(self, files: Mapping[str, bytes]) -> None:
        """Durable, in the place of what these keys had; quicker than one after the other."""
        ...

    async def size(self, key: str) -> int:
        """0 when there is none."""
        ...

    def open(self, key: str, *, offset: int = 0) -> AsyncGenerator[bytes]:
        """The bytes from `offset`; nothing when there is none."""
        ...

    async def delete(self, *keys: str) -> None:
        """Silent about those that are not there."""
        ...
