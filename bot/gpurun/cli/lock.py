"""`gpurun lock`: which names are pinned, and by what. `--check` imports nothing that could reach a network."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from gpurun.cli.output import say
from gpurun.cli.the_file import named_files, read_config, way_in
from gpurun.cli.trouble import tell
from gpurun.cli.validate import show_config_error
from gpurun.domain.config import Config
from gpurun.domain.errors import ConfigError, UserError
from gpurun.domain.folder import A_FOLDER, A_LINK, CONFIG_NAME, not_a_file
from gpurun.domain.ids import ImageTag
from gpurun.domain.lock import Lock
from gpurun.plan.load import check
from gpurun.plan.lock import LOCK_NAME, and_all, read_lock, unreadable_lock
from gpurun.plan.relock import difference, jobs_that_want

ALL_JOBS = ""
"""`--upgrade` without a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A `.gpurun.yml` and the lock beside it."""

    file: Path
    config: Config
    lock_file: Path
    lock: Lock
    built: Mapping[str, Mapping[ImageTag, str]]
    """What the Dockerfiles of its jobs name, by job, with the place there."""


class Unusable(Exception):
    """A file cannot be used, and the person has been told why."""


def lock(files: Sequence[Path], path: str | None = None, *, upgrade: str | None) -> int:
    """Writes the lock beside each file. `path`: what `--path` says.

    Exit code 0; 2 for a file or pin that cannot be used, 3 for no answer.
    """
    if upgrade and _is_a_file(upgrade):
        say(f"gpurun lock: `--upgrade` takes the name of a job, and {upgrade} looks like a file.", err=True)
        say(f"The file stands before it: `gpurun lock {shlex.quote(upgrade)} --upgrade`.", err=True)
        return 2
    try:
        places = _places(files, path)
    except Unusable:
        return 2
    from gpurun.cli.relock import write_locks  # what can reach a network takes half a second to import

    return write_locks(places, upgrade=upgrade)


def _is_a_file(typed: str) -> bool:
    return "/" in typed or Path(typed).name in {CONFIG_NAME, LOCK_NAME}


def check_locks(files: Sequence[Path], path: str | None = None) -> int:
    """Exit code 0 when each lock has exactly what the jobs want, 1 when not, 2 when a file cannot be used."""
    try:
        places = _places(files, path)
    except Unusable:
        return 2
    faults = {place.file: _faults(place) for place in places}
    for fault in chain.from_iterable(faults.values()):
        say(fault, err=True)
    wrong = [file for file, found in faults.items() if found]
    if wrong:
        named = "" if wrong == [Path(CONFIG_NAME)] else "".join(f" {file}" for file in wrong)
        say(f"Run `gpurun lock{named}` and commit the file.", err=True)
        return 1
    for place in places:
        say(f"{place.lock_file} pins everything that {place.file} does not.")
    return 0


def _faults(place: Place) -> list[str]:
    found = difference(place.config, place.lock, place.built)
    jobs = {name: and_all(jobs_that_want(name, place.config, place.built)) for name in found.missing}
    missing = [f"{place.lock_file} does not pin {name}, which {jobs[name]} needs." for name in found.missing]
    return missing + [f"{place.lock_file} pins {name}, which no job needs." for name in found.unneeded]


def _places(files: Sequence[Path], path: str | None) -> tuple[Place, ...]:
    """Each once; a lock stands for the file beside it. Raises Unusable."""
    try:
        named = named_files(files, path)
    except UserError as error:
        tell("gpurun lock", error)
        raise Unusable from error
    return tuple(_place(file) for file in dict.fromkeys(_beside(file) for file in named))


def _beside(file: Path) -> Path:
    """Another file would take the pins of the `.gpurun.yml` beside it out of their lock. Raises Unusable."""
    if file.name not in {CONFIG_NAME, LOCK_NAME}:
        say(f"gpurun lock: {file} is not called {CONFIG_NAME}, and {LOCK_NAME} stands for that one.", err=True)
        say(f"Name a {CONFIG_NAME}, or the {LOCK_NAME} beside it.", err=True)
        raise Unusable
    return file.with_name(CONFIG_NAME)


def _place(file: Path) -> Place:
    config = _config(file)
    lock_file = file.with_name(LOCK_NAME)
    return Place(file=file, config=config, lock_file=lock_file, lock=_lock(lock_file), built=_built(file, config))


def _built(file: Path, config: Config) -> Mapping[str, Mapping[ImageTag, str]]:
    """Read where they lie now. Raises Unusable."""
    if all(job.build is None for job in config.jobs.values()):
        return {}
    from gpurun.cli.dockerfiles import BrokenBuild, tags_in_dockerfiles  # most files have no build

    try:
        return tags_in_dockerfiles(file, config)
    except BrokenBuild as broken:
        say(broken, err=True)
        raise Unusable from broken
    except UserError as error:
        tell("gpurun lock", error)
        raise Unusable from error


def _config(file: Path) -> Config:
    try:
        text = read_config(file)
    except UserError as error:
        tell("gpurun lock", error)
        raise Unusable from error
    found = check(text)
    if isinstance(found, Config):
        return found
    for fault in found:
        show_config_error(fault, text, str(file))
    raise Unusable


def _lock(file: Path) -> Lock:
    """An absent one is empty. A link is refused: it would be written elsewhere, and a run would not find it."""
    try:
        if file.is_symlink():
            tell("gpurun lock", not_a_file(file, A_LINK))
            raise Unusable
        text = file.read_bytes()
    except FileNotFoundError:
        return Lock()
    except IsADirectoryError:
        tell("gpurun lock", not_a_file(file, A_FOLDER))
        raise Unusable from None
    except OSError as error:
        tell("gpurun lock", unreadable_lock(file, error.strerror or str(error), hint=way_in(error, file)))
        raise Unusable from error
    try:
        return read_lock(text)
    except ConfigError as fault:
        say(f"{file}:{fault.line}: {fault.message.rstrip('.')}.", err=True)
        say(fault.hint, err=True)
        raise Unusable from fault
