"""What is still unpinned, and the plan once nothing is."""

from __future__ import annotations

from dataclasses import dataclass

from gpurun.domain.config import Job
from gpurun.domain.errors import Bug, PinNotFound
from gpurun.domain.ids import CommitSha, ImageRef, JobName, RepoName
from gpurun.domain.lock import Lock, LockedImage
from gpurun.domain.plan import ModelSpec, Plan
from gpurun.domain.run import Pins
from gpurun.plan.lock import lock_upgraded, pinned, with_day

MAX_LISTED_BYTES = 3 * 1024 * 1024
"""Names and hashes of all model files of a job: a plan is one row, and the agent takes 4 MiB at a time."""
_HASHES_BYTES = 200
"""Of one file, with its size and its place in the list."""


@dataclass(frozen=True, slots=True)
class FetchCommit:
    """The commit must be in the mirror; its tree is the pin."""


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


Pin = FetchCommit | ReadLock | ConfirmImage | ResolveModel


def missing_pins(job: Job, pins: Pins, *, folder: str = "") -> tuple[Pin, ...]:
    """What can be resolved now, side by side: commit, lock, image, and one model, in the order of the file,
    which lies in `folder`.

    Raises: Unpinned when the lock has no pin for a name of the job.
    """
    missing: list[Pin] = []
    if pins.tree is None:
        missing.append(FetchCommit())
    if job.needs_lock and pins.lock is None:
        return (*missing, ReadLock())
    wanted = pinned(job, pins.lock or Lock(), folder=folder)
    if not pins.image_confirmed:
        missing.append(ConfirmImage(wanted.image, wanted.locked))
    if len(pins.models) < len(wanted.models):
        missing.append(ResolveModel(wanted.models[len(pins.models)]))
    return tuple(missing)


def told_with_day(error: PinNotFound, pin: Pin, lock: Lock, *, folder: str = "") -> PinNotFound:
    """A pin of the lock in that folder that does not hold any more, with the day on which it did."""
    match pin:
        case ConfirmImage(_, locked):
            return with_day(error, locked, hint=lock_upgraded(folder))
        case ResolveModel(spec):
            wanted = spec.id, spec.revision
            entry = next((one for one in lock.models if (one.id, one.revision) == wanted), None)
            return with_day(error, entry, hint=lock_upgraded(folder))
        case FetchCommit() | ReadLock():
            return error


def build(*, repo: RepoName, sha: CommitSha, job_name: JobName, job: Job, pins: Pins, folder: str = "") -> Plan:
    """The plan of a job whose pins are all there. `folder` is the one that holds the file, from the top.

    Raises: PinNotFound for too many model files; Bug when a pin is missing or belongs to another model.
    """
    if pins.tree is None or missing_pins(job, pins):
        raise Bug("a plan was asked for before everything was pinned")
    wanted = pinned(job, pins.lock or Lock())
    for spec, pin in zip(wanted.models, pins.models, strict=True):
        if (spec.id, spec.revision, spec.target) != (pin.id, pin.revision, pin.target):
            raise Bug(f"the pin of {pin.id} stands in the place of {spec.id}")
    _require_short(pins)
    return Plan(
        repo=repo,
        commit=sha,
        tree=pins.tree,
        job=job_name,
        image=wanted.image,
        run=job.run,
        setup=job.setup,
        workdir="/".join(part for part in (folder, job.workdir) if part),
        secrets=tuple(sorted(job.secrets)),
        env=tuple(sorted(job.env.items())),
        models=pins.models,
        resources=job.needs(),
        max_duration_s=job.max_duration_s,
        artifacts=job.artifacts,
    )


def _require_short(pins: Pins) -> None:
    files = [file for model in pins.models for file in model.files]
    if sum(len(file.path.encode()) + _HASHES_BYTES for file in files) > MAX_LISTED_BYTES:
        raise PinNotFound(
            f"The models of this job have {len(files):,} files, more than a job can have.",
            hint="Use fewer models in one job, or repositories with fewer and larger files.",
        )
