"""What is still unpinned, and the plan once nothing is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpurun.domain.config import Job
from gpurun.domain.errors import Bug, PinNotFound
from gpurun.domain.ids import CommitSha, ImageRef, ImageTag, JobName, RepoName
from gpurun.domain.lock import Lock, LockedImage
from gpurun.domain.plan import ModelSpec, Plan
from gpurun.domain.quantity import quoted
from gpurun.domain.run import Pins
from gpurun.domain.source import (
    MAX_SOURCE_BYTES,
    MAX_SUBMODULE_DEPTH,
    MAX_SUBMODULES,
    Fetched,
    Gitlink,
    Submodule,
)
from gpurun.plan.build import images_of, plan_build
from gpurun.plan.lock import lock_upgraded, pinned, with_day

MAX_LISTED_BYTES = 3 * 1024 * 1024
"""Names and hashes of all model files of a job: a plan is one row, and the agent reads no answer of more than 8 MiB."""
FETCHED_AT_ONCE = 4
"""Submodules."""
GIB = 1024**3
_HASHES_BYTES = 200
"""Of one file, with its size and its place in the list."""


@dataclass(frozen=True, slots=True)
class FindMerge:
    """The forge must say what the pull request would become."""


@dataclass(frozen=True, slots=True)
class FetchCommit:
    """The commit must be in the mirror; its tree is the pin."""


@dataclass(frozen=True, slots=True)
class FetchSubmodule:
    """One more commit must be in a mirror."""

    link: Gitlink


@dataclass(frozen=True, slots=True)
class FetchHistory:
    """The commits behind the run's own, and their tags."""


@dataclass(frozen=True, slots=True)
class FetchLfs:
    """The LFS files of one commit must have come."""

    link: Gitlink | None
    """None: the run's own."""


@dataclass(frozen=True, slots=True)
class ReadBuild:
    """The commit's Dockerfile and context must be looked at; the commit is all there."""


@dataclass(frozen=True, slots=True)
class FindInputs:
    """What the job's `setup_inputs` mean in the commit."""


@dataclass(frozen=True, slots=True)
class ReadLock:
    """`.gpurun.lock` at the commit must say what the names in the job stand for."""


@dataclass(frozen=True, slots=True)
class ConfirmImage:
    """The registry must have this digest."""

    image: ImageRef
    locked: LockedImage | None = None
    """The entry that says so; None when the file does."""


@dataclass(frozen=True, slots=True)
class ResolveModel:
    """The hub must list this model's files."""

    spec: ModelSpec


Pin = (
    FindMerge
    | FetchCommit
    | FetchSubmodule
    | FetchHistory
    | FetchLfs
    | ReadBuild
    | FindInputs
    | ReadLock
    | ConfirmImage
    | ResolveModel
)


def missing_pins(job: Job, pins: Pins, *, folder: str = "") -> tuple[Pin, ...]:
    """What can be resolved now, side by side: commit, lock, images, and one model, in the order of the file,
    which lies in `folder`. A build is read when the whole commit is there, and only then it is known what else to pin.

    Raises: Unpinned when the lock has no pin for a name of the job; ConfigError for its Dockerfile.
    """
    missing: list[Pin] = [FindMerge()] if job.wants_merge and pins.merge is None else list(_missing_source(pins))
    if job.build is not None and pins.build is None:
        return tuple(missing) or (ReadBuild(),)
    if job.checkout.git and pins.tree is not None and pins.tags is None:
        missing.append(FetchHistory())
    if job.setup_inputs and pins.tree is not None and pins.setup_inputs is None:
        missing.append(FindInputs())
    images = images_of(job, pins.build)
    if pins.lock is None and (job.needs_lock or any(isinstance(image, ImageTag) for image in images)):
        return (*missing, ReadLock())
    wanted = pinned(job, pins.lock or Lock(), images, folder=folder)
    if not pins.image_confirmed:
        left = (image for image in wanted.images if image not in pins.confirmed)
        missing += [ConfirmImage(image, wanted.locked.get(image)) for image in left]
    if len(pins.models) < len(wanted.models):
        missing.append(ResolveModel(wanted.models[len(pins.models)]))
    return tuple(missing)


def told_with_day(error: PinNotFound, pin: Pin, lock: Lock, *, folder: str = "") -> PinNotFound:
    """A pin of the lock in that folder that does not hold any more, with the day on which it did."""
    match pin:
        case ConfirmImage(_, locked):
            return with_day(error, locked, hint=lock_upgraded(folder))
        case ResolveModel(spec):
            wanted = spec.kind, spec.id, spec.revision
            entry = next((one for one in lock.models if (one.kind, one.id, one.revision) == wanted), None)
            return with_day(error, entry, hint=lock_upgraded(folder))
        case _:
            return error


def build(*, repo: RepoName, sha: CommitSha, job_name: JobName, job: Job, pins: Pins, folder: str = "") -> Plan:
    """The plan of a job whose pins are all there. `folder` is the one that holds the file, from the top.

    Raises: PinNotFound for too many model files; Bug when a pin is missing or belongs to another model.
    """
    if pins.tree is None or missing_pins(job, pins):
        raise Bug("a plan was asked for before everything was pinned")
    wanted = pinned(job, pins.lock or Lock(), images_of(job, pins.build))
    for spec, pin in zip(wanted.models, pins.models, strict=True):
        if spec != replace(pin.spec, refs=spec.refs):
            raise Bug(f"the pin of {pin.id} stands in the place of {spec.id}")
    _require_short(pins)
    return Plan(
        repo=repo,
        commit=sha,
        tree=pins.tree,
        job=job_name,
        image=wanted.images[0] if job.build is None else None,
        build=plan_build(job.build, pins.build, wanted.digests) if job.build and pins.build else None,
        run=job.run,
        setup=job.setup,
        workdir="/".join(part for part in (folder, job.workdir) if part),
        secrets=tuple(sorted(job.secrets)),
        env=tuple(sorted(job.env.items())),
        models=tuple(replace(pin, refs=spec.refs) for spec, pin in zip(wanted.models, pins.models, strict=True)),
        resources=job.needs(),
        max_duration_s=job.max_duration_s,
        artifacts=job.artifacts,
        submodules=tuple(
            Submodule(path=link.path, url=link.source, commit=link.commit)
            for link in sorted(pins.links, key=lambda link: link.path)
        ),
        lfs=pins.lfs,
        git=bool(job.checkout.git),
        tags=pins.tags or (),
        setup_inputs=tuple(sorted(pins.setup_inputs or (), key=lambda one: one.path)) if job.setup_inputs else (),
    )


def _missing_source(pins: Pins) -> Iterator[Pin]:
    if pins.tree is None:
        yield FetchCommit()
        return
    yield from [FetchSubmodule(link) for link in pins.links if not link.source][:FETCHED_AT_ONCE]
    if pins.lfs_left:
        path = pins.lfs_left[0]
        yield FetchLfs(next((link for link in pins.links if link.path == path), None) if path else None)


def with_commit(pins: Pins, found: Fetched) -> Pins:
    """The run's own commit has come. Raises: PinNotFound for a source that is too large or has too many submodules."""
    merge = replace(pins.merge, base=found.base) if pins.merge else None
    return _with(replace(pins, tree=found.tree, merge=merge), found, "")


def with_submodule(pins: Pins, link: Gitlink, source: str, found: Fetched) -> Pins:
    """A submodule has come, and names what it points to itself. Raises: PinNotFound as `with_commit`."""
    if link.depth >= MAX_SUBMODULE_DEPTH and found.links:
        raise PinNotFound(
            f"The submodule {quoted(link.path)} has submodules, deeper than the {link.depth} levels that are fetched."
        )
    inner = tuple(
        replace(one, path=f"{link.path}/{one.path}", above=source, depth=link.depth + 1) for one in found.links
    )
    fetched = tuple(replace(one, source=source) if one == link else one for one in pins.links)
    return _with(replace(pins, links=fetched), replace(found, links=inner), link.path)


def with_lfs(pins: Pins, path: str) -> Pins:
    """The LFS files of that repository have come."""
    return replace(pins, lfs_left=tuple(one for one in pins.lfs_left if one != path))


def _with(pins: Pins, found: Fetched, path: str) -> Pins:
    links = (*pins.links, *found.links)
    if len(links) > MAX_SUBMODULES:
        raise PinNotFound(f"The commit has more than the {MAX_SUBMODULES} submodules that are fetched.")
    n_bytes = pins.source_bytes + found.n_bytes
    if n_bytes > MAX_SOURCE_BYTES:
        raise PinNotFound(
            f"The source of this commit has {n_bytes / GIB:.1f} GiB, more than the {MAX_SOURCE_BYTES / GIB:g} GiB that "
            "a run gets.",
            hint="Keep data out of it: as `models`, or where `setup` can get it.",
        )
    left = (*pins.lfs_left, path) if found.n_lfs else pins.lfs_left
    return replace(pins, source_bytes=n_bytes, links=links, lfs=pins.lfs or bool(found.n_lfs), lfs_left=left)


def _require_short(pins: Pins) -> None:
    files = [file for model in pins.models for file in model.files]
    if sum(len(file.path.encode()) + _HASHES_BYTES for file in files) > MAX_LISTED_BYTES:
        raise PinNotFound(
            f"The models of this job have {len(files):,} files, more than a job can have.",
            hint="Use fewer models in one job, or repositories with fewer and larger files.",
        )
