"""What is still unpinned, and the plan once nothing is."""

from __future__ import annotations

from dataclasses import dataclass

from gpurun.domain.config import Job
from gpurun.domain.errors import Bug, PinNotFound
from gpurun.domain.ids import CommitSha, ImageRef, JobName, RepoName
from gpurun.domain.plan import ModelSpec, Plan
from gpurun.domain.run import Pins

MAX_LISTED_BYTES = 3 * 1024 * 1024
"""Names and hashes of all model files of a job: a plan is one row, and the agent takes 4 MiB at a time."""
_HASHES_BYTES = 200
"""Of one file, with its size and its place in the list."""


@dataclass(frozen=True, slots=True)
class FetchCommit:
    """The commit must be in the mirror; its tree is the pin."""


@dataclass(frozen=True, slots=True)
class ConfirmImage:
    """The registry must have this digest."""

    image: ImageRef


@dataclass(frozen=True, slots=True)
class ResolveModel:
    """The hub must list this model's files."""

    spec: ModelSpec


Pin = FetchCommit | ConfirmImage | ResolveModel


def missing_pins(job: Job, pins: Pins) -> tuple[Pin, ...]:
    """What can be resolved now, side by side: commit, image, and one model, in the order of the file."""
    missing: list[Pin] = []
    if pins.tree is None:
        missing.append(FetchCommit())
    if not pins.image_confirmed:
        missing.append(ConfirmImage(job.image))
    specs = job.model_specs()
    if len(pins.models) < len(specs):
        missing.append(ResolveModel(specs[len(pins.models)]))
    return tuple(missing)


def build(*, repo: RepoName, sha: CommitSha, job_name: JobName, job: Job, pins: Pins) -> Plan:
    """The plan of a job whose pins are all there.

    Raises: PinNotFound for too many model files; Bug when a pin is missing or belongs to another model.
    """
    if pins.tree is None or missing_pins(job, pins):
        raise Bug("a plan was asked for before everything was pinned")
    for spec, pin in zip(job.model_specs(), pins.models, strict=True):
        if (spec.id, spec.revision, spec.target) != (pin.id, pin.revision, pin.target):
            raise Bug(f"the pin of {pin.id} stands in the place of {spec.id}")
    _require_short(pins)
    return Plan(
        repo=repo,
        commit=sha,
        tree=pins.tree,
        job=job_name,
        image=job.image,
        run=job.run,
        setup=job.setup,
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
