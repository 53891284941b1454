"""The plan of a job at a commit of this checkout, with as little network as it takes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from gpurun.adapters.local import LocalForge
from gpurun.adapters.local.checkout import LocalState
from gpurun.cli.the_file import file_on_disk
from gpurun.domain.build import BuildPin
from gpurun.domain.config import Job
from gpurun.domain.errors import ConfigError, HubUnavailable, NoSuchInput, NothingIncluded, UserError
from gpurun.domain.folder import A_FOLDER, beside, config_path, not_a_file
from gpurun.domain.ids import CommitSha, ImageTag, JobName, TreeSha
from gpurun.domain.lock import Lock
from gpurun.domain.plan import ModelPin, ModelSpec, Plan, SetupInput
from gpurun.domain.run import Pins
from gpurun.domain.source import Merge
from gpurun.plan.build import images_of
from gpurun.plan.lines import at_include, at_input
from gpurun.plan.lock import (
    LOCK_NAME,
    MAX_LOCK_BYTES,
    Unpinned,
    pinned,
    read_lock,
    require_same_files,
)
from gpurun.plan.locked import files_of, pin_of, small_files
from gpurun.plan.resolve import build, with_commit, with_submodule
from gpurun.plan.source import MAX_BYTES as CONFIG_MAX_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """A commit of this checkout, and the folder in it that is meant."""

    state: LocalState
    sha: CommitSha
    tree: TreeSha
    folder: str
    """From the top; empty for the top."""
    config_text: bytes | None
    lock: Lock | UserError
    """What `.gpurun.lock` beside the file pins, or what is wrong with it: only some jobs need it."""

    @property
    def file(self) -> str:
        """The path of `.gpurun.yml`."""
        return config_path(self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A plan, as far as it is known without a run."""

    plan: Plan
    lock: Lock
    """What pinned the names; empty when the file pins everything."""
    unlisted: tuple[ModelSpec, ...] = ()
    """Models whose files nobody has listed: they have none in the plan."""
    trouble: HubUnavailable | None = None
    """Why hashes are missing in it, or files."""


class ModelFiles(Protocol):
    """Who knows which files a model has."""

    async def pin(self, spec: ModelSpec, lock: Lock) -> ModelPin | None:
        """None when nobody knows. Raises: PinNotFound, HubUnavailable."""
        ...


async def look_at(forge: LocalForge, state: LocalState, sha: CommitSha, folder: str) -> At:
    """Raises UserError when the file there is too large."""
    path = config_path(folder)
    text = await forge.read_file(state.repo, sha, path, max_bytes=CONFIG_MAX_BYTES)
    lock = await _lock(forge, state, sha, beside(folder, LOCK_NAME))
    return At(state=state, sha=sha, tree=await forge.tree_of(sha), folder=folder, config_text=text, lock=lock)


async def local_source(forge: LocalForge, at: At, name: JobName, job: Job) -> Pins:
    """The pins of the source alone: the commit, and the submodules that lie in this checkout. Nothing is fetched.

    Raises PinNotFound or ConfigError when a run would be refused for them.
    """
    state, sha = at.state, at.sha
    skip, get = job.skipped(), job.fetched()
    pins = with_commit(Pins(), await forge.contents(sha, skip=skip, get=get))
    while left := [link for link in pins.links if not link.source]:
        source = (await forge.submodule_source(state.repo, left[0], reader="")).url
        inner = await forge.inside(source).contents(left[0].commit, skip=skip, get=get)
        pins = with_submodule(pins, left[0], source, inner)
    merge = Merge(commit=sha) if job.wants_merge else None
    tags = await forge.tags(sha) if job.checkout.git else None
    inputs = await _inputs(forge, at, name, job)
    return replace(pins, merge=merge, setup_inputs=inputs, lfs_left=(), tags=tags)


async def lone_source(forge: LocalForge, at: At, name: JobName, job: Job) -> Pins:
    """The same as if the commit pointed to nothing else: what can be said of any commit that is here.

    Raises ConfigError or PinNotFound for `setup_inputs`.
    """
    inputs = await _inputs(forge, at, name, job)
    return Pins(tree=at.tree, tags=(), setup_inputs=inputs, merge=Merge(commit=at.sha))


async def _inputs(forge: LocalForge, at: At, name: JobName, job: Job) -> tuple[SetupInput, ...]:
    if not job.setup_inputs:
        return ()
    try:
        return await forge.inputs(at.sha, at.folder, job.setup_inputs)
    except NoSuchInput as error:
        raise at_input(error, at.config_text, name) from error


async def draft(
    at: At, name: JobName, job: Job, files: ModelFiles, source: Pins, *, built: BuildPin | None = None
) -> Draft:
    """The plan that a run of this commit would make. `source`: of this job there. A job with a build needs what the
    commit holds for it.

    Raises: Unpinned, ConfigError of the lock or of the Dockerfile, PinNotFound for a model.
    """
    images = images_of(job, built)
    in_dockerfile = job.build is not None and any(isinstance(image, ImageTag) for image in images)
    lock = at.lock if job.needs_lock or in_dockerfile else Lock()
    if isinstance(lock, UserError):
        raise lock
    try:
        wanted = pinned(job, lock, images, folder=at.folder)
    except Unpinned as error:
        error.locked_in(from_here(at.state, at.folder))
        raise
    models: list[ModelPin] = []
    unlisted: list[ModelSpec] = []
    trouble: HubUnavailable | None = None
    for spec in wanted.models:
        try:
            pin = await files.pin(spec, lock)
        except NothingIncluded as error:
            raise at_include(error, spec, at.config_text, name) from error
        except HubUnavailable as error:
            trouble = trouble or error
            pin = _pin_of_lock(spec, lock)
        if pin is None:
            unlisted.append(spec)
        models.append(pin or spec.with_files(()))
    pins = replace(source, lock=lock, image_confirmed=True, models=tuple(models), build=built)
    plan = build(repo=at.state.repo.name, sha=at.sha, job_name=name, job=job, pins=pins, folder=at.folder)
    return Draft(plan=plan, lock=lock, unlisted=tuple(unlisted), trouble=trouble)


async def local_build(
    forge: LocalForge, at: At, name: JobName, job: Job, source: Pins | None = None
) -> BuildPin | None:
    """What the commit holds for the job's build. `source` as for `draft`. Raises: ConfigError, SourceUnavailable."""
    if job.build is None:
        return None
    from gpurun.cli.building import build_of as look  # most jobs have none, and it needs much

    return await look(forge, at, name, job, source)


class LockOnly:
    """What the lock lists. Small files have no SHA-256: two plans can be compared, none has a digest."""

    async def pin(self, spec: ModelSpec, lock: Lock) -> ModelPin | None:
        return _pin_of_lock(spec, lock)


class Known(Protocol):
    """The hub, and what came from it before."""

    async def resolve(self, spec: ModelSpec) -> ModelPin: ...

    async def known(self, spec: ModelSpec, blobs: Mapping[str, int]) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class LockThenHub:
    """The lock with the hashes of small files that were fetched before; the hub only when that is not all."""

    hub: Known
    folder: str
    """That holds the lock, from the current folder."""

    async def pin(self, spec: ModelSpec, lock: Lock) -> ModelPin | None:
        entry = files_of(spec, lock)
        if entry is not None:
            known = await self.hub.known(spec, small_files(spec, entry))
            pin = pin_of(spec, entry, known)
            if all(file.sha256 for file in pin.files):
                return pin
        pin = await self.hub.resolve(spec)
        require_same_files(lock, pin, folder=self.folder)
        return pin


@dataclass(frozen=True, slots=True)
class LockElseHub:
    """The lock, or the hub where it lists nothing; for comparing, which needs no SHA-256 of small files."""

    hub: Known

    async def pin(self, spec: ModelSpec, lock: Lock) -> ModelPin | None:
        return _pin_of_lock(spec, lock) or await self.hub.resolve(spec)


@asynccontextmanager
async def model_files(job: Job, at: At) -> AsyncIterator[ModelFiles]:
    """For one job there. What can reach a network is loaded only for jobs that have models."""
    if not job.from_hub:
        yield LockOnly()
        return
    async with the_hub() as hub:
        yield LockThenHub(hub, from_here(at.state, at.folder))


@asynccontextmanager
async def the_hub() -> AsyncIterator[Known]:
    """With this user's settings and cache. Raises UserError for a setting."""
    from gpurun.cli.environment import read_settings
    from gpurun.wiring import open_sources

    async with open_sources(read_settings()) as sources:
        yield sources.hub


def from_here(state: LocalState, folder: str) -> str:
    """As `gpurun lock` takes it in the current folder; empty where it finds the file there by itself."""
    if file_on_disk(None).folder == folder:
        return ""
    return os.path.relpath(state.top / folder)


def _pin_of_lock(spec: ModelSpec, lock: Lock) -> ModelPin | None:
    entry = files_of(spec, lock)
    return pin_of(spec, entry, {}) if entry is not None else None


async def _lock(forge: LocalForge, state: LocalState, sha: CommitSha, path: str) -> Lock | UserError:
    try:
        raw = await forge.read_file(state.repo, sha, path, max_bytes=MAX_LOCK_BYTES)
        if raw is None and (state.top / path).is_dir():
            return not_a_file(path, A_FOLDER)
        return Lock() if raw is None else read_lock(raw)
    except ConfigError as fault:
        fault.file = path  # the reader knows no folder
        return fault
    except UserError as error:
        return error
