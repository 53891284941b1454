"""The identity of a plan: SHA-256 over canonical JSON of the fields below, with defaults left out.

A field that a later version adds with a default changes no digest of a plan that does not use it. The defaults written
here are part of the format and never change, whatever the defaults of `.gpurun.yml` become. The golden files in
`tests/data/plans` hold both.
"""

from __future__ import annotations

import hashlib
import json
from typing import TypeAlias

from gpurun.domain.plan import ModelFile, ModelPin, Plan, Resources

FORMAT = 1

Json: TypeAlias = "str | int | list[Json] | dict[str, Json]"


def digest(plan: Plan) -> str:
    """`sha256:<64 hex>`: the same commit, pins and job."""
    return _sha256(canonical(plan))


def result_key(plan: Plan) -> str:
    """As `digest`, with the tree in place of the commit: the same content, whatever commit holds it."""
    return _sha256(_dumped({**_fields(plan), "tree": str(plan.tree)}))


def canonical(plan: Plan) -> bytes:
    """The bytes that `digest` hashes: sorted keys, no spaces, UTF-8."""
    return _dumped({**_fields(plan), "commit": str(plan.commit)})


def _fields(plan: Plan) -> dict[str, Json]:
    return {
        "plan": FORMAT,
        "repo": str(plan.repo),
        "job": str(plan.job),
        **({"image": str(plan.image)} if plan.image is not None else {}),
        **({"build": {"inputs_sha256": plan.build.inputs_sha256}} if plan.build is not None else {}),
        "run": plan.run,
        **_unless("setup", plan.setup, ""),
        **_unless("workdir", plan.workdir, ""),
        **_unless("secrets", list(plan.secrets), []),
        **_unless("env", dict(plan.env), {}),
        **_unless("models", [_model(model) for model in plan.models], []),
        **_unless("resources", _resources(plan.resources), {}),
        **_unless("max_duration_s", plan.max_duration_s, 1800),
        **_unless("artifacts", list(plan.artifacts), []),
        **_unless("submodules", {one.path: str(one.commit) for one in plan.submodules}, {}),
        **_unless("git", {"tags": {tag.name: str(tag.object) for tag in plan.tags}} if plan.git else {}, {}),
        **_unless("lfs", "fetched" if plan.lfs else "", ""),
        **_unless("setup_inputs", {one.path: f"{one.mode} {one.blob}" for one in plan.setup_inputs}, {}),
    }


def _model(model: ModelPin) -> Json:
    files = sorted(model.files, key=lambda file: file.path)
    return {
        "id": model.id,
        **_unless("kind", model.kind, "model"),
        "revision": str(model.revision),
        **_unless("target", model.target or "", ""),
        "files": [_file(file) for file in files],
    }


def _file(file: ModelFile) -> Json:
    return {"path": file.path, "size": file.size, "sha256": file.sha256, "etag": file.etag}


def _resources(resources: Resources) -> dict[str, Json]:
    return {
        **_unless("gpus", resources.gpus, 0),
        **_unless("vram_min_mib", resources.vram_min_mib, 0),
        **_unless("vram_max_mib", resources.vram_max_mib, 0),
        # text: JSON has no one way to write a float
        **_unless("cpus", f"{resources.cpus:.2f}", "0.00"),
        **_unless("memory_mib", resources.memory_mib, 0),
        **_unless("disk_mib", resources.disk_mib, 0),
        **_unless("shm_mib", resources.shm_mib, 0),
    }


def _unless(key: str, value: Json, default: Json) -> dict[str, Json]:
    return {} if value == default else {key: value}


def _dumped(fields: dict[str, Json]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
