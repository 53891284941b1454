"""Where bytes come from and stay: git mirror, model hub, image registry, blob store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from typing import Protocol

from gpurun.domain.forge import GitSource, NotFetched
from gpurun.domain.ids import CommitSha, ImageRef, RepoName, Revision, TreeSha
from gpurun.domain.lock import ImagePin
from gpurun.domain.plan import ModelFile, ModelPin, ModelSpec
from gpurun.domain.repository import RepoFacts


class Git(Protocol):
    """A bare mirror on the bot's disk."""

    async def fetch(
        self, source: GitSource, repo: RepoName, sha: CommitSha, *, skip: Collection[NotFetched] = ()
    ) -> TreeSha:
        """The exact commit is in the mirror afterwards; its tree id. Idempotent.

        Raises: PinNotFound (the remote has no such commit, or it points to what is not fetched and not in `skip`),
        SourceUnavailable.
        """
        ...

    async def look(self, repo: RepoName, sha: CommitSha) -> RepoFacts:
        """What the tree says of the repository, bounded. Needs `fetch` before. Raises: SourceUnavailable."""
        ...

    def archive(self, repo: RepoName, sha: CommitSha) -> AsyncIterator[bytes]:
        """A tar stream of the tree, with the commit id in its global pax header. Needs `fetch` before."""
        ...


class Hub(Protocol):
    """The Hugging Face Hub or a mirror of it."""

    async def resolve(self, spec: ModelSpec) -> ModelPin:
        """The file list with sizes and hashes at exactly that revision.

        Raises: PinNotFound (repository, revision or access), HubUnavailable.
        """
        ...

    async def revision_of(self, model_id: str, ref: str) -> Revision:
        """The commit that a branch or tag points to now; of a 40-digit commit itself, when the model has it.

        Says nothing about access to the files: a gated model shows its commits to everybody, and `resolve` asks.

        Raises: PinNotFound (repository, ref or access), HubUnavailable.
        """
        ...

    def open(self, model_id: str, revision: Revision, file: ModelFile, *, offset: int = 0) -> AsyncIterator[bytes]:
        """The file's bytes from `offset`, from the bot's verified cache when it is there, else while it is downloaded.

        Raises: PinNotFound naming the file when the bytes are not what `file.sha256` says (at the end of the
        stream, and the cache keeps nothing), HubUnavailable.
        """
        ...


class Images(Protocol):
    """The registry API, without a container engine."""

    async def confirm(self, image: ImageRef) -> None:
        """Returns when the registry has exactly this digest.

        Raises: PinNotFound (no such manifest, or no access), RegistryUnavailable.
        """
        ...

    async def pin(self, name: str, tag: str) -> ImagePin:
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

    async def size(self, key: str) -> int:
        """0 when there is none."""
        ...

    def open(self, key: str, *, offset: int = 0) -> AsyncGenerator[bytes]:
        """The bytes from `offset`; nothing when there is none."""
        ...

    async def delete(self, key: str) -> None:
        """Silent when there is none."""
        ...
