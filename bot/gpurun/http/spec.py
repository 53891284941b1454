"""The run spec: what the agent is told to do, as records of the agent protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from pydantic import SecretStr

from gpurun.domain.layer import LayerUse
from gpurun.domain.plan import Plan
from gpurun.domain.run import Attempt
from gpurun.domain.secret import GivenSecret
from gpurun.domain.stream import ArtifactLimits
from gpurun_agent import protocol

Field = tuple[str, str | int]


def build_spec(
    plan: Plan,
    attempt: Attempt,
    *,
    token: SecretStr,
    cancel: bool,
    log_quota_bytes: int,
    limits: ArtifactLimits,
    secrets: Iterable[GivenSecret],
    needles: Iterable[bytes],
    masks_version: int,
    weights_mounted: bool = False,
    layer: LayerUse | None = None,
) -> bytes:
    """The answer of `claim`, and the only place where a value of a secret leaves the bot. Holds the run token too:
    never log it.
    """
    return protocol.encode(
        [
            ("token", token.get_secret_value()),
            ("attempt", attempt.id),
            ("number", attempt.number),
            *orders(attempt, cancel=cancel),
            ("max_duration_s", plan.max_duration_s),
            ("log_quota", log_quota_bytes),
            ("source", plan.commit),
            ("setup", plan.setup),
            ("run", plan.run),
            ("workdir", plan.workdir),
            *([("git", 1)] if plan.git else []),
            *(("env", f"{name}={value}") for name, value in plan.env),
            *(("secret", f"{secret.name}={secret.value.get_secret_value()}") for secret in secrets),
            *masks_fields(needles, masks_version),
            *_models(plan),
            *([("weights", protocol.MOUNTED)] if plan.models and weights_mounted else []),
            *_layer(plan, layer),
            *(("artifact", pattern) for pattern in plan.artifacts),
            ("artifact_files", limits.files),
            ("artifact_file_bytes", limits.file_bytes),
            ("artifact_bytes", limits.total_bytes),
        ]
    )


def masks_fields(needles: Iterable[bytes], version: int) -> list[tuple[str, str | int | bytes]]:
    """What the agent masks: bytes wherever they stand."""
    return [("masks", version), *(("mask", needle) for needle in sorted(needles))]


def orders(attempt: Attempt, *, cancel: bool = False) -> tuple[Field, ...]:
    """What every answer carries: whether to stop, and the hard end."""
    return orders_of(stop=cancel or attempt.stop_asked_at is not None, hard_deadline=attempt.hard_deadline)


def orders_of(*, stop: bool, hard_deadline: datetime) -> tuple[Field, ...]:
    """The same from its parts."""
    return ("cancel", int(stop)), ("deadline", int(hard_deadline.timestamp()))


def _layer(plan: Plan, use: LayerUse | None) -> Iterator[Field]:
    if use is None:
        return
    found = use.layer
    words = ("make", use.most_bytes) if found is None else ("take", found.sha256, found.size, found.day, found.setup_ms)
    yield "layer", "\0".join(str(word) for word in words)
    for one in plan.setup_inputs:
        yield "layer_input", one.path


def _models(plan: Plan) -> Iterator[Field]:
    for index, model in enumerate(plan.models):
        yield "model", f"{index}\0{model.id}\0{model.revision}\0{model.target or ''}"
        yield "layout", "\0".join((str(index), model.kind, *model.refs))
        for file in model.files:
            yield "file", f"{index}\0{file.size}\0{file.sha256}\0{file.etag}\0{file.path}"
