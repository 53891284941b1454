"""The Dockerfiles of jobs as they lie in the working tree, for `gpurun lock` and `gpurun validate`."""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpurun.cli.the_file import top_above, way_in
from gpurun.domain.build import MAX_DOCKERFILE_BYTES, predefined_args
from gpurun.domain.config import BuildKeys, Config, Job
from gpurun.domain.errors import ConfigError, UserError
from gpurun.domain.ids import ImageRef, ImageTag, JobName
from gpurun.domain.platform import platform_of_machine
from gpurun.plan.build import no_context, no_dockerfile, paths_of, require_one_registry
from gpurun.plan.dockerfile import Dockerfile, read_dockerfile
from gpurun.plan.lines import at_build
from gpurun.plan.load import explain


class BrokenBuild(Exception):
    """`str` says it whole, with place, line and hint."""


@dataclass(frozen=True, slots=True)
class WorkingTree:
    """Where a `.gpurun.yml` lies."""

    file: Path
    """By the name that was typed."""
    top: Path
    folder: str
    """From the top; empty for the top."""

    @classmethod
    def of(cls, file: Path) -> WorkingTree:
        here = file.resolve().parent
        top = top_above(here)
        folder = here.relative_to(top).as_posix()
        return cls(file, top, "" if folder == "." else folder)

    @property
    def is_checkout(self) -> bool:
        """Else nobody knows where its top is."""
        return (self.top / ".git").exists()


def tags_in_dockerfiles(file: Path, config: Config) -> Mapping[str, Mapping[ImageTag, str]]:
    """By job, of those that have a build; each with the place that names it, for people.

    Raises BrokenBuild; UserError for what may not be read.
    """
    tree = WorkingTree.of(file)
    named = {name: images_named(tree, name, job) for name, job in config.jobs.items() if job.build is not None}
    return {
        name: {image: place for image, place in images.items() if isinstance(image, ImageTag)}
        for name, images in named.items()
    }


def broken_builds(file: Path, config: Config) -> Iterator[str]:
    """What is wrong with each, whole. Raises UserError for what may not be read.

    Those of jobs that fetch submodules may lie in one that is not here.
    """
    tree = WorkingTree.of(file)
    for name, job in config.jobs.items():
        elsewhere = job.checkout.submodules == "fetch" and (tree.top / ".gitmodules").exists()
        if job.build is None or not tree.is_checkout or elsewhere:
            continue
        try:
            images_named(tree, name, job)
        except BrokenBuild as broken:
            yield str(broken)


def images_named(tree: WorkingTree, name: JobName, job: Job) -> Mapping[ImageRef | ImageTag, str]:
    """By the Dockerfile of the job's `build`, each with its place there.

    Raises BrokenBuild; UserError for what may not be read.
    """
    assert job.build is not None
    try:
        path, context = paths_of(job.build, tree.folder)
        data = _dockerfile(tree.top, path)
        _require_folder(tree.top, context)
        read = _read(data, path, job.build)
        require_one_registry(job, read.images)
    except ConfigError as fault:
        text = tree.file.read_bytes()
        placed = at_build(fault, text, name)
        placed.file = str(tree.file)
        raise BrokenBuild(explain(placed, text)) from fault
    return {image: f"line {line} of `{path}`" for image, line in read.lines.items()}


def _read(data: bytes, path: str, keys: BuildKeys) -> Dockerfile:
    """Raises BrokenBuild."""
    own = platform_of_machine("linux", platform.machine())
    try:
        return read_dockerfile(
            data, file=path, target=keys.target or "", args=keys.args, predefined=predefined_args(own)
        )
    except ConfigError as fault:
        raise BrokenBuild(explain(fault, data)) from fault


def _dockerfile(top: Path, path: str) -> bytes:
    """Raises ConfigError, without its line, for what a commit would not have as a file; UserError."""
    where = top / path
    try:
        if not stat.S_ISREG(_mode(top, path)):
            raise no_dockerfile(path)
        with os.fdopen(os.open(where, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            return opened.read(MAX_DOCKERFILE_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", hint=way_in(error, where)) from error


def _require_folder(top: Path, path: str) -> None:
    """Raises ConfigError, without its line."""
    if path and not stat.S_ISDIR(_mode(top, path)):
        raise no_context(path)


def _mode(top: Path, path: str) -> int:
    """0 for what is not there or lies behind a link: it may lead anywhere."""
    where, mode = top, stat.S_IFDIR
    for part in path.split("/"):
        where = where / part
        try:
            mode = where.lstat().st_mode if stat.S_ISDIR(mode) else 0
        except FileNotFoundError:
            return 0
    return mode
