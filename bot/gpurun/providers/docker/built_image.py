"""Images that were built here: how they are found again, kept, and removed when nobody needed them for long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import structlog

from gpurun.domain.ids import BuiltImage
from gpurun.providers.docker import ready_image
from gpurun.providers.docker.engine import vendor_errors, words

if TYPE_CHECKING:
    from docker.api.client import APIClient

log = structlog.get_logger()

REPOSITORY = "gpurun-build"
LABEL_INPUTS = "gpurun.build"
"""On the image, and on the ready images above it: the SHA-256 of what it was built from."""
KEEP = timedelta(days=14)
"""Since it was last needed."""
KEEP_AT_MOST = 30
"""Builds, the least recently needed go first."""
NEVER_SOONER = timedelta(days=1)
"""None of those beyond KEEP_AT_MOST goes so soon after it was last needed: a run that was given it may still wait for
its weights on the way to create, and builds of a busy day are needed again on the same day.
"""


def is_built(api: APIClient, image: BuiltImage) -> bool:
    """It is there, and ours. Vendor errors other than "no such image" pass."""
    found = _inspected(api, str(image))
    return found is not None and _labels(found).get(LABEL_INPUTS) == image.inputs_sha256


def use(api: APIClient, image: BuiltImage) -> None:
    """It is needed now, which the engine keeps as the time of its tag."""
    repository, tag = image.split(":")
    api.tag(str(image), repository, tag=tag, force=True)


def keep_part(api: APIClient, layer: str, image: BuiltImage, name: str) -> None:
    """Layers of a stage, or of a build that failed, have no name: with one they go when the build goes.

    Until then they are the cache of the next build.
    """
    with suppress(*vendor_errors()):
        api.tag(layer, REPOSITORY, tag=f"{image.inputs_sha256}.{name}", force=True)


def forget_ready(api: APIClient, image: BuiltImage) -> None:
    """Ready images above an image of the same inputs that was built before: another build is another image.

    Vendor errors do not pass. One that stays is used as it was before this build, which had the same inputs.
    """
    of_inputs = {"label": f"{LABEL_INPUTS}={image.inputs_sha256}"}
    try:
        tags = [
            tag for one in api.images(name=ready_image.REPOSITORY, filters=of_inputs) for tag in one["RepoTags"] or ()
        ]
    except vendor_errors() as exc:
        log.warning("ready_images_not_listed", image=str(image), error=words(exc))
        return
    for tag in tags:
        with suppress(*vendor_errors()):
            api.remove_image(tag)


def sweep(api: APIClient, *, spare: Collection[str], now: datetime | None = None) -> tuple[str, ...]:
    """Removes those that nobody needed for KEEP, and of more than KEEP_AT_MOST the least recently needed. `spare`:
    inputs that are being built. One that a container is made of stays. The inputs of those that went.
    """
    import docker.errors

    now = now or datetime.now(UTC)
    tags: defaultdict[str, list[str]] = defaultdict(list)
    used: dict[str, datetime] = {}
    for one in api.images(name=REPOSITORY):
        found = _inspected(api, one["Id"])
        ours = [tag for tag in one.get("RepoTags") or () if tag.startswith(f"{REPOSITORY}:")]
        for tag in ours if found is not None else ():
            inputs = tag.rpartition(":")[2].partition(".")[0]
            tags[inputs].append(tag)
            used[inputs] = max(used.get(inputs, datetime.min.replace(tzinfo=UTC)), _tagged_at(found or {}))
    going = [one for one in _going(used, now) if one not in spare]
    for inputs in going:
        for tag in tags[inputs]:
            with suppress(docker.errors.APIError):  # in use, or gone
                api.remove_image(tag)
    return tuple(going)


def _going(used: Mapping[str, datetime], now: datetime) -> Iterable[str]:
    newest_first = sorted(used, key=lambda inputs: used[inputs], reverse=True)
    for place, inputs in enumerate(newest_first):
        age = now - used[inputs]
        if age > KEEP or (place >= KEEP_AT_MOST and age > NEVER_SOONER):
            yield inputs


def _inspected(api: APIClient, name: str) -> Mapping[str, Any] | None:
    import docker.errors

    try:
        found: Mapping[str, Any] = api.inspect_image(name)  # type: ignore[no-untyped-call]  # a gap of types-docker
    except docker.errors.NotFound:
        return None
    return found


def _labels(found: Mapping[str, Any]) -> Mapping[str, str]:
    return (found.get("Config") or {}).get("Labels") or {}


def _tagged_at(found: Mapping[str, Any]) -> datetime:
    """When it was last needed; when it was made, on an engine that does not say."""
    for told in ((found.get("Metadata") or {}).get("LastTagTime"), found.get("Created")):
        with suppress(ValueError, TypeError):
            at = datetime.fromisoformat(str(told))
            if at.year > 1970:
                return at
    return datetime.now(UTC)
