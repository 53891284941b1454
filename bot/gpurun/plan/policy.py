"""What the `policy` of the default branch lets a job ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from gpurun.domain.config import Job, PolicyKeys
from gpurun.domain.errors import NotByPolicy
from gpurun.domain.folder import config_path
from gpurun.domain.ids import JobName


def require_allowed(job: Job, name: JobName, policy: PolicyKeys) -> None:
    """Raises: NotByPolicy with everything that is not allowed."""
    _raise(list(_refused(job, name, policy)))


def require_images_allowed(images: Iterable[str], policy: PolicyKeys) -> None:
    """Those of a Dockerfile, which nobody knows before it was read. Raises: NotByPolicy."""
    _raise([told for image in images for told in _image_refused(image, policy)])


def _raise(refused: list[str]) -> None:
    if refused:
        raise NotByPolicy(
            " ".join(refused),
            hint="`policy` of the default branch's `.gpurun.yml` says so; who may merge there can change it.",
        )


def providers_of(job: Job, policy: PolicyKeys) -> tuple[str, ...] | None:
    """Where the job may run, the first choice first; None: anywhere."""
    allowed = policy.providers
    if not job.providers:
        return allowed
    return tuple(provider for provider in job.providers if allowed is None or provider in allowed)


def changed_note(own: PolicyKeys, policy: PolicyKeys, *, folder: str = "") -> str:
    """What to tell when a commit's own file says otherwise; empty when it does not.

    Only the file at the top sets a policy, so that one in a `folder` without a word of it says nothing else.
    """
    if own == policy or (folder and own == PolicyKeys()):
        return ""
    where = f"`{config_path(folder)}` of this commit"
    return f"`policy` in {where} is ignored: the one at the top of the default branch applies."


def _names(image: str) -> tuple[str, ...]:
    """How a pattern may call it: with and without its tag, and a short name of Docker Hub in full."""
    name, _, last = image.rpartition("/")
    bare = "/".join(part for part in (name, last.partition(":")[0]) if part)
    first = bare.partition("/")[0]
    if "/" in bare and ("." in first or ":" in first or first == "localhost"):
        return image, bare
    hub = "docker.io/" if "/" in bare else "docker.io/library/"
    return image, bare, hub + image, hub + bare


def _image_refused(named: str, policy: PolicyKeys) -> Iterator[str]:
    image = str(named).partition("@")[0]
    if policy.images is not None and not any(fnmatchcase(n, glob) for n in _names(image) for glob in policy.images):
        yield f"The image {image} is not allowed here: {', '.join(policy.images) or 'none is'}."


def _refused(job: Job, name: JobName, policy: PolicyKeys) -> Iterator[str]:
    yield from _image_refused(job.image, policy) if job.image is not None else ()
    if job.providers and not providers_of(job, policy):
        yield f"The provider {', '.join(job.providers)} is not allowed here."
    for secret in job.all_secrets:
        rule = (policy.secrets or {}).get(secret)
        if policy.secrets is not None and (rule is None or name not in rule.jobs):
            jobs = ", ".join([*(rule.jobs if rule else ()), name])
            line = f"policy: {{secrets: {{{secret}: {{jobs: [{jobs}]}}}}}}"
            yield f"The job {name} may not use the secret {secret}. `{line}` would let it."
    if policy.max.duration is not None and job.max_duration_s > policy.max.duration:
        yield f"`max_duration` is {job.max_duration_s} s, and {policy.max.duration} s is the most here."
    gpus = job.needs().gpus
    if policy.max.gpus is not None and gpus > policy.max.gpus:
        yield f"The job asks for {gpus} GPUs, and {policy.max.gpus} is the most here."
