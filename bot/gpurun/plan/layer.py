"""What `setup` depends on, as one key: the same key, the same files after it."""

from __future__ import annotations

import hashlib
import json

from gpurun.domain.plan import Plan

FORMAT = 1
"""Of what agents pack."""

NOT_WITH_SECRETS = "The job gets secrets, so what its setup does is not kept: it runs each time."
NOT_WITH_BUILD = (
    "The job's image is built here, so what its setup does is not kept: it runs each time. "
    "Steps of the Dockerfile are kept."
)


def why_not_kept(plan: Plan) -> str:
    """Of a job that says what its `setup` reads; empty when there is no reason."""
    if not plan.setup_inputs:
        return ""
    if plan.secrets:
        return NOT_WITH_SECRETS
    return NOT_WITH_BUILD if plan.image is None else ""  # the same inputs may give another image on another day


def layer_key(plan: Plan, platform: str) -> str:
    """64 hex digits; empty when nothing may be kept."""
    if not plan.setup or not plan.setup_inputs or why_not_kept(plan):
        return ""
    assert plan.image is not None
    told = {
        "format": FORMAT,
        "image": plan.image.digest,
        "platform": platform,
        "setup": plan.setup,
        "workdir": plan.workdir,
        "env": dict(plan.env),
        "gpus": plan.resources.gpus,
        "lfs": plan.lfs,
        "git": plan.git,
        "models": [
            [
                one.kind,
                one.id,
                str(one.revision),
                one.target or "",
                sorted((file.path, file.sha256) for file in one.files),
            ]
            for one in plan.models
        ],
        "inputs": sorted((one.path, one.mode, one.blob) for one in plan.setup_inputs),
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
