"""What is still unpinned, and the plan once nothing is."""

from __future__ import annotations

from dataclasses import dataclass

from gpurun.domain.config import Job
from gpurun.domain.errors import Bug
from gpurun.domain.ids import CommitSha, ImageRef, JobName, RepoName
from gpurun.domain.plan import ModelSpec, Plan
from gpurun.domain.run import Pins


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


@dataclass(frozen=True, slots=True)
class AllPinned:
    """`build` may be called."""


NextPin = FetchCommit | ConfirmImage | ResolveModel | AllPinned


def next_pin(job: Job, pins: Pins) -> NextPin:
    """The one thing to resolve now: commit, then image, then the models in the order of the file."""
    if pins.tree is None:
        return FetchCommit()
    if not pins.image_confirmed:
        return ConfirmImage(job.image)
    specs = job.model_specs()
    if len(pins.models) < len(specs):
        return ResolveModel(specs[len(pins.models)])
    return AllPinned()


def build(*, repo: RepoName, sha: CommitSha, job_name: JobName, job: Job, pins: Pins) -> Plan:
    """The plan of a job whose pins are all there. Raises Bug when one is missing or belongs to another model."""
    if pins.tree is None or next_pin(job, pins) != AllPinned():
        raise Bug("a plan was asked for before everything was pinned")
    for spec, pin in zip(job.model_specs(), pins.models, strict=True):
        if (spec.id, spec.revision, spec.target) != (pin.id, pin.revision, pin.target):
            raise Bug(f"the pin of {pin.id} stands in the place of {spec.id}")
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
