"""The Dockerfiles of jobs as they lie in the working tree, for `gpurun lock`."""

from __future__ import annotations

import platform
from pathlib import Path

import click

from gpurun.cli.lock import Unusable
from gpurun.cli.the_file import top_above
from gpurun.domain.build import MAX_DOCKERFILE_BYTES, predefined_args
from gpurun.domain.config import BuildKeys, Config
from gpurun.domain.errors import ConfigError
from gpurun.domain.ids import ImageRef, ImageTag
from gpurun.domain.platform import platform_of_machine
from gpurun.plan.build import paths_of, require_one_registry
from gpurun.plan.dockerfile import read_dockerfile
from gpurun.plan.lines import at_build
from gpurun.plan.load import explain
from gpurun.plan.relock import Built


def tags_in_dockerfiles(file: Path, config: Config) -> Built:
    """By job, of those that have a build. Raises Unusable, after telling why."""
    top = top_above(file.resolve().parent)
    folder = file.resolve().parent.relative_to(top).as_posix()
    found: dict[str, tuple[ImageTag, ...]] = {}
    for name, job in config.jobs.items():
        if job.build is None:
            continue
        try:
            path = paths_of(job.build, "" if folder == "." else folder)[0]
            images = _images(top / path, path, job.build)
            require_one_registry(job, images)
        except ConfigError as fault:
            text = file.read_bytes()
            placed = at_build(fault, text, name)
            placed.file = str(file)
            click.echo(explain(placed, text), err=True)
            raise Unusable from fault
        found[name] = tuple(image for image in images if isinstance(image, ImageTag))
    return found


def _images(where: Path, path: str, keys: BuildKeys) -> tuple[ImageRef | ImageTag, ...]:
    try:
        with where.open("rb") as opened:
            data = opened.read(MAX_DOCKERFILE_BYTES + 1)
    except OSError as error:
        click.echo(f"gpurun lock: the Dockerfile {path} cannot be read: {error.strerror}.", err=True)
        click.echo("`build: {dockerfile: …}` names it from the folder that holds `.gpurun.yml`.", err=True)
        raise Unusable from error
    own = platform_of_machine("linux", platform.machine())
    try:
        read = read_dockerfile(
            data, file=path, target=keys.target or "", args=keys.args, predefined=predefined_args(own)
        )
    except ConfigError as fault:
        click.echo(explain(fault, data), err=True)
        raise Unusable from fault
    return read.images
