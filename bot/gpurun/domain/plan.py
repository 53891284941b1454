"""A plan: one job at one commit with everything resolved. Holds only what decides the result."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpurun.domain.ids import CommitSha, ImageRef, JobName, RepoName, Revision, TreeSha
from gpurun.domain.source import GitTag, Submodule


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What `.gpurun.yml` asks for, before the file list is known."""

    id: str
    """`org/name` on the hub."""
    revision: Revision
    target: str | None = None
    """Absolute folder in the container for plain files, beside the hub cache layout; None for the cache only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file of a model at its revision."""

    path: str
    size: int
    """Bytes."""
    sha256: str
    """64 lower-case hex digits over the file's bytes."""
    etag: str
    """The name of the blob in a hub cache: sha256 for LFS files, the git blob id for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPin:
    """A model with its file list."""

    id: str
    revision: Revision
    target: str | None = None
    files: tuple[ModelFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the job needs. Zero means: not asked for."""

    gpus: int = 0
    vram_min_mib: int = 0
    vram_max_mib: int = 0
    cpus: float = 0.0
    memory_mib: int = 0
    disk_mib: int = 0
    shm_mib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Immutable; `plan.digest` computes its identity over exactly these fields."""

    repo: RepoName
    commit: CommitSha
    tree: TreeSha
    job: JobName
    image: ImageRef
    run: str
    """Shell text, run by `sh -c` in the container."""
    setup: str = ""
    workdir: str = ""
    """Where both start, relative to the top of the commit; empty for the top."""
    secrets: tuple[str, ...] = ()
    """Names of environment variables whose values come from elsewhere, sorted."""
    env: tuple[tuple[str, str], ...] = ()
    """Sorted by name."""
    models: tuple[ModelPin, ...] = ()
    resources: Resources = field(default_factory=Resources)
    max_duration_s: int = 1800
    """From the start of `setup`."""
    artifacts: tuple[str, ...] = ()
    """Glob patterns under `workdir`."""
    submodules: tuple[Submodule, ...] = ()
    """That are in their places, sorted by path."""
    lfs: bool = False
    """The content of LFS files is in the place of their pointers, which bind it."""
    git: bool = False
    """The work folder has a `.git`."""
    tags: tuple[GitTag, ...] = ()
    """In that `.git`, sorted by name."""
