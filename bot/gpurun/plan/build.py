"""From `build` in the file to a build with nothing left that can move. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from gpurun.domain.build import BuildPin, BuildPlan, predefined_args
from gpurun.domain.config import BuildKeys, Job
from gpurun.domain.errors import ConfigError
from gpurun.domain.ids import ImageRef, ImageTag
from gpurun.domain.image import registry_of
from gpurun.domain.quantity import quoted
from gpurun.plan.dockerfile import Dockerfile, read_dockerfile

INPUTS_FORMAT = 1


class LeavesCheckout(ConfigError):
    """A path of `build` leads out of the commit."""


def paths_of(keys: BuildKeys, folder: str) -> tuple[str, str]:
    """Dockerfile and context, from the top of the repository; the file with the job lies in `folder`.

    Raises: LeavesCheckout, without its line.
    """
    context = _below_top(keys.context or ".", folder)
    dockerfile = (
        _below_top(keys.dockerfile, folder) if keys.dockerfile else "/".join(filter(None, (context, "Dockerfile")))
    )
    if not dockerfile:
        raise LeavesCheckout(f"{quoted(keys.dockerfile or '')} is no file", hint="Write the path of a Dockerfile.")
    return dockerfile, context


def _below_top(path: str, folder: str) -> str:
    """Raises LeavesCheckout."""
    parts = folder.split("/") if folder else []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                raise LeavesCheckout(
                    f"{quoted(path)} leads out of the repository",
                    hint="Write a path inside it; it starts at the folder that holds this file.",
                )
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)


def no_dockerfile(path: str) -> ConfigError:
    """Without its line. Git keeps of a link where it leads to, and not what is there."""
    return ConfigError(
        f"there is no file {quoted(path)} in the repository",
        hint="`build: {dockerfile: …}` names it from the folder that holds this file. A link is none.",
    )


def no_context(path: str) -> ConfigError:
    """Without its line."""
    return ConfigError(
        f"there is no folder {quoted(path)} in the repository",
        hint="`build: {context: …}` names it from the folder that holds this file. A link is none.",
    )


def dockerfile_of(keys: BuildKeys, pin: BuildPin) -> Dockerfile:
    """Raises ConfigError with the Dockerfile's line."""
    return read_dockerfile(
        pin.text,
        file=pin.dockerfile,
        target=keys.target or "",
        args=keys.args,
        predefined=predefined_args(pin.platform),
    )


def images_of(job: Job, pin: BuildPin | None) -> tuple[ImageRef | ImageTag, ...]:
    """All that the job names: its own, or those of its Dockerfile once that was read. Raises ConfigError."""
    if job.build is not None:
        return () if pin is None else dockerfile_of(job.build, pin).images
    return () if job.image is None else (job.image,)


def plan_build(keys: BuildKeys, pin: BuildPin, digests: Mapping[ImageTag, ImageRef]) -> BuildPlan:
    """With each image by digest; `digests` has all tags. Raises ConfigError."""
    read = dockerfile_of(keys, pin)
    images = dict.fromkeys(digests[one] if isinstance(one, ImageTag) else one for one in read.images)
    plan = BuildPlan(
        inputs_sha256="",
        dockerfile=pin.dockerfile,
        context=pin.context,
        text=read.pinned(digests),
        target=keys.target or "",
        args=tuple(sorted(keys.args.items())),
        platform=pin.platform,
        context_sha256=pin.context_sha256,
        ignore=pin.ignore,
        images=tuple(images),
    )
    return replace(plan, inputs_sha256=build_inputs(plan))


def build_inputs(plan: BuildPlan) -> str:
    """SHA-256 over canonical JSON of everything that decides the image, as far as anybody can say it."""
    fields = {
        "build": INPUTS_FORMAT,
        "dockerfile": plan.text,
        "target": plan.target,
        "args": dict(plan.args),
        "platform": plan.platform,
        "context": plan.context_sha256,
    }
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def require_one_registry(job: Job, images: tuple[ImageRef | ImageTag, ...]) -> None:
    """A login is for one registry. Raises ConfigError, without its line, when nobody says which."""
    if job.registry is None or job.registry.server is not None:
        return
    registries = sorted({registry_of(image) for image in images})
    if len(registries) > 1:
        raise ConfigError(
            f"`registry` does not say for which of {', '.join(registries)} the login is",
            hint=f"Write `server: {registries[-1]}` below it, for example.",
        )


def syntax_note(pin: BuildPin | None, keys: BuildKeys | None) -> str:
    """What to tell of a frontend that is not used; empty when none is named."""
    if pin is None or keys is None or not (line := dockerfile_of(keys, pin).syntax):
        return ""
    return f"`# syntax=` in line {line} of `{pin.dockerfile}` is not used: builds here know Docker's own syntax only."
