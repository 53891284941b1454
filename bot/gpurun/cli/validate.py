"""`gpurun validate`. Whoever saves a file waits for it, so it loads what a file without faults needs, and no more."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gpurun.cli.output import say
from gpurun.cli.the_file import named_files, read_config, way_in
from gpurun.cli.trouble import tell
from gpurun.domain.config import Config
from gpurun.domain.errors import ConfigError, UserError
from gpurun.domain.folder import CONFIG_NAME
from gpurun.plan.load import check, explain
from gpurun.plan.notes import notes

STDIN = Path("-")


def validate_files(typed: Sequence[Path], path: str | None) -> int:
    """Exit code 0 when all of them can be used, else 2. `path`: what `--path` says when no file was typed."""
    try:
        files = named_files(typed, path)
    except UserError as error:
        tell("gpurun validate", error)
        return 2
    return max([validate_file(file) for file in files])


def validate_file(file: Path) -> int:
    """Exit code 0 when the file can be used, else 2 with every fault on stderr. `-` is what comes in on stdin.

    What is allowed and most likely not meant is told on stderr too.
    """
    try:
        text = sys.stdin.buffer.read() if file == STDIN else _read(file)
    except UserError as error:
        tell("gpurun validate", error)
        return 2
    name = "stdin" if file == STDIN else str(file)
    found = check(text)
    if isinstance(found, Config):
        if broken := _broken_builds(file, found):
            say("\n".join(broken), err=True)
            return 2
        jobs = ", ".join(found.jobs)
        say(f"{name} is fine. Jobs: {jobs}.")
        for note in notes(found, text):
            say(f"{name}{note}", err=True)
        return 0
    for fault in found:
        show_config_error(fault, text, name)
    return 2


def _broken_builds(file: Path, config: Config) -> list[str]:
    """What a `build` names is looked for in the working tree; another file may belong anywhere."""
    if file.name != CONFIG_NAME or all(job.build is None for job in config.jobs.values()):
        return []
    from gpurun.cli.dockerfiles import broken_builds  # most files have no build

    try:
        return list(broken_builds(file, config))
    except UserError as error:
        return [f"gpurun validate: {error}", *filter(None, [error.hint])]


def _read(file: Path) -> bytes:
    """Under another name anything may be checked: a link, a pipe. Raises UserError."""
    if file.name == CONFIG_NAME:
        return read_config(file)
    try:
        return file.read_bytes()
    except OSError as error:
        hint = "`gpurun validate FILE` checks a file, and `--path FOLDER` that of a folder."
        raise UserError(f"{file} cannot be read: {error.strerror}.", hint=way_in(error, file) or hint) from error


def show_config_error(error: ConfigError, text: bytes | str | None, file: str) -> None:
    """The place, the line with a caret, and what to do."""
    if text is None:
        say(f"{file}: {error.message}", err=True)
        say(error.hint, err=True)
    else:
        say(explain(error, text).replace(CONFIG_NAME, file, 1), err=True)
