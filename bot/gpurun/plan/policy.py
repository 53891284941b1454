"""What the `policy` of the default branch lets a job ask for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase

from gpurun.domain.config import Job, PermissionKeys, PolicyKeys
from gpurun.domain.errors import NotByPolicy, PinNotFound
from gpurun.domain.folder import config_path
from gpurun.domain.ids import JobName
from gpurun.domain.plan import ModelSpec, hub_path
from gpurun.plan.lock import path_told


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


def untrusted_providers_of(job: Job, policy: PolicyKeys) -> tuple[str, ...] | None:
    """The same for code that somebody has to approve."""
    usual, allowed = providers_of(job, policy), policy.untrusted.providers
    if usual is None or allowed is None:
        return usual if allowed is None else allowed
    return tuple(provider for provider in usual if provider in allowed)


def no_place(policy: PolicyKeys, refusing: Collection[str]) -> NotByPolicy:
    """Why code that somebody has to approve runs nowhere here. `refusing`: providers that the server keeps from it."""
    allowed = policy.untrusted.providers
    if not refusing or (allowed is not None and not set(allowed) & set(refusing)):
        return NotByPolicy(
            "Code of a fork, or of an author who may not push, runs on none of the providers that the job may use.",
            hint="`policy: {untrusted: {providers: […]}}` of the default branch's `.gpurun.yml` says where it may; "
            "who may merge there can change it.",
        )
    return NotByPolicy(
        "Code of a fork, or of an author who may not push, does not run on the machine of the bot itself.",
        hint="Whoever runs this server can allow that with `GPURUN_ALLOW_UNTRUSTED_LOCAL=true`.",
    )


def not_open(spec: ModelSpec, closed: PinNotFound, *, gated_too: bool) -> NotByPolicy:
    """What the hub does not show to everybody."""
    what = "is private, or is not there" if gated_too else "is gated or private, or is not there"
    way = "Somebody with write access can open a pull request with it from a branch of this repository."
    if not gated_too:
        way = f"`policy: {{untrusted: {{gated_models: true}}}}` on the default branch allows gated ones. {way}"
    return NotByPolicy(
        f"The {path_told(hub_path(spec.kind, spec.id))} at {spec.revision[:12]} {what}, and code of a fork, or of an "
        f"author who may not push, gets what everybody may download. ({closed.message})",
        hint=way,
    )


def changed_note(own: PolicyKeys, policy: PolicyKeys, *, folder: str = "") -> str:
    """What to tell when a commit's own file says otherwise; empty when it does not.

    Only the file at the top sets a policy, so that one in a `folder` without a word of it says nothing else.
    """
    if own == policy or (folder and own == PolicyKeys()):
        return ""
    where = f"`{config_path(folder)}` of this commit"
    return f"`policy` in {where} is ignored: the one at the top of the default branch applies."


def permissions_note(own: PermissionKeys, permissions: PermissionKeys, *, folder: str = "") -> str:
    """The same for `permissions`."""
    if own == permissions or (folder and own == PermissionKeys()):
        return ""
    where = f"`{config_path(folder)}` of this commit"
    return f"`permissions` in {where} is ignored: those at the top of the default branch apply."


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
