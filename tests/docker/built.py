"""Images that tests have built, and their end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from docker.errors import APIError

from gpurun.providers.docker.built_image import LABEL_INPUTS, REPOSITORY


def tags_of_builds(engine: Any) -> list[str]:
    """Of all that the engine has."""
    return [tag for one in engine.images(name=REPOSITORY) for tag in one.get("RepoTags") or ()]


def inputs_of_builds(engine: Any) -> set[str]:
    """The same by inputs."""
    return {tag.rpartition(":")[2].partition(".")[0] for tag in tags_of_builds(engine)}


def remove_built(engine: Any, inputs: Iterable[str]) -> None:
    """With the ready images above them, which no container uses any more."""
    for one in inputs:
        for image in engine.images(filters={"label": f"{LABEL_INPUTS}={one}"}):
            for tag in image.get("RepoTags") or ():
                with contextlib.suppress(APIError):
                    engine.remove_image(tag)
        for tag in tags_of_builds(engine):
            if one in tag:
                with contextlib.suppress(APIError):
                    engine.remove_image(tag)
