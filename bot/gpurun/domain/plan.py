"""A plan: one job at one commit with everything resolved. Holds only what decides the result."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, Literal

from gpurun.domain.build import BuildPlan
from gpurun.domain.ids import BuiltImage, CommitSha, ImageRef, JobName, RepoName, Revision, TreeSha
from gpurun.domain.source import GitTag, Submodule

HubKind = Literal["model", "dataset"]
"""What a repository of the hub is."""


def hub_path(kind: HubKind, id: str) -> str:
    """What the address of its page has: `org/name`, `datasets/org/name`."""
    return id if kind == "model" else f"{kind}s/{id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What `.gpurun.yml` asks for of a model or data set, before the file list is known."""

    id: str
    """`org/name` on the hub."""
    kind: HubKind = "model"
    revision: Revision
    refs: tuple[str, ...] = ("main",)
    """Names that lead to this revision in the container."""
    target: str | None = None
    """Absolute folder in the container for plain files, beside the hub cache layout; None for the cache only."""
    include: tuple[str, ...] = ()
    """Patterns, one of which a file must match; empty for all files."""
    exclude: tuple[str, ...] = ()
    """Patterns, none of which it may match."""

    def wants(self, path: str) -> bool:
        """As `allow_patterns` and `ignore_patterns` of `snapshot_download` do: `*` stands for `/`, too."""
        included = not self.include or _matches(path, self.include)
        return included and not _matches(path, self.exclude)

    def with_files(self, files: tuple[ModelFile, ...]) -> ModelPin:
        """The pin. `files` are those that it wants."""
        return ModelPin(files=files, **_fields_of(self))


def _fields_of(spec: ModelSpec) -> dict[str, Any]:
    return {one.name: getattr(spec, one.name) for one in fields(ModelSpec)}


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(path, f"{pattern}*" if pattern.endswith("/") else pattern) for pattern in patterns)


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
class ModelPin(ModelSpec):
    """A model or data set with its file list.

    Names and patterns are not in the digest: names are no content, and what the patterns select is.
    """

    files: tuple[ModelFile, ...]

    @property
    def spec(self) -> ModelSpec:
        """What it is the pin of."""
        return ModelSpec(**_fields_of(self))

    @property
    def path(self) -> str:
        """`org/name`, `datasets/org/name`."""
        return hub_path(self.kind, self.id)


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
class SetupInput:
    """A file of the commit that `setup` reads."""

    path: str
    """From the top."""
    mode: str
    """`100644`, as git writes it."""
    blob: str
    """Git's id of its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Immutable; `plan.digest` computes its identity over exactly these fields."""

    repo: RepoName
    commit: CommitSha
    tree: TreeSha
    job: JobName
    image: ImageRef | None
    """None: `build` makes it."""
    build: BuildPlan | None = None
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
    """Models, then data sets, each in the order of the file."""
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
    setup_inputs: tuple[SetupInput, ...] = ()
    """All that `setup` reads of the commit, sorted by path; what it does may be kept then. Empty: nobody says."""

    @property
    def pulled_images(self) -> tuple[ImageRef, ...]:
        """Its own, or those that its Dockerfile names."""
        if self.build is not None:
            return self.build.images
        return () if self.image is None else (self.image,)

    @property
    def container_image(self) -> ImageRef | BuiltImage:
        """What the container is made of."""
        if self.build is not None:
            return self.build.image
        assert self.image is not None  # one of the two
        return self.image
