"""What `.gpurun.lock` says of the files of models, so that a plan can be made without the hub. Pure.

The hub stores large files by SHA-256 and small ones by git blob id. The lock has what the hub tells, so of small files
it has the blob id only, while a plan names every file by SHA-256.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpurun.domain.errors import NothingIncluded
from gpurun.domain.lock import Lock, LockedModel
from gpurun.domain.plan import ModelFile, ModelPin, ModelSpec, Plan


def files_of(spec: ModelSpec, lock: Lock) -> LockedModel | None:
    """The entry that lists the files of this model at this revision."""
    same = (
        entry for entry in lock.models if (entry.kind, entry.id, entry.revision) == (spec.kind, spec.id, spec.revision)
    )
    return next((entry for entry in same if entry.files), None)


def small_files(spec: ModelSpec, entry: LockedModel) -> Mapping[str, int]:
    """Size by git blob id, of the wanted files whose SHA-256 the lock does not have."""
    return {file.blob: file.size for file in entry.files if not file.sha256 and spec.wants(file.path)}


def pin_of(spec: ModelSpec, entry: LockedModel, sha256_of_blob: Mapping[str, str]) -> ModelPin:
    """The model with the wanted files of the lock. The SHA-256 of a small file that is not known is empty.

    Raises: NothingIncluded.
    """
    files = (
        ModelFile(
            path=file.path,
            size=file.size,
            sha256=file.sha256 or sha256_of_blob.get(file.blob, ""),
            etag=file.sha256 or file.blob,
        )
        for file in entry.files
        if spec.wants(file.path)
    )
    pin = spec.with_files(tuple(files))
    if not pin.files:
        raise NothingIncluded(
            f"`include` and `exclude` leave none of the {len(entry.files)} files of {spec.id}, such as "
            f"{entry.files[0].path!r}."
        )
    return pin


def unknown_hashes(plan: Plan) -> tuple[str, ...]:
    """`config.json of org/model`: the files without which the plan has no digest yet."""
    return tuple(f"{file.path} of {model.id}" for model in plan.models for file in model.files if not file.sha256)
