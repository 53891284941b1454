"""The job that was typed, of the file that was read. Loads nothing that could run one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpurun.command.parse import suggest
from gpurun.domain.config import Config
from gpurun.domain.errors import ConfigError, UserError
from gpurun.domain.folder import CONFIG_NAME, config_path, typed_folder
from gpurun.domain.ids import JobName
from gpurun.plan.load import job_names, load

CONFIG_MAX_BYTES = 64 * 1024


class BrokenFile(UserError):
    """The file that was meant has a fault."""

    def __init__(self, fault: ConfigError, text: bytes | None, path: str) -> None:
        super().__init__(str(fault).replace(CONFIG_NAME, path, 1), hint=fault.hint)
        self.fault = fault
        self.text = text
        self.path = path


def config_of(raw: bytes | None, path: str = CONFIG_NAME) -> Config:
    """Raises BrokenFile, also when there is none."""
    try:
        return load(raw)
    except ConfigError as fault:
        raise BrokenFile(fault, raw, path) from fault


def job_of(config: Config, typed: str, path: str = CONFIG_NAME) -> JobName:
    """Raises UserError for a job that the file does not have."""
    jobs = job_names(config)
    if typed not in jobs:
        raise unknown_job(typed, jobs, path)
    return JobName(typed)


def unknown_job(typed: str, jobs: Sequence[str], path: str = CONFIG_NAME) -> UserError:
    """With the one that was probably meant, and all that there are."""
    meant = suggest(typed, jobs)
    guess = f" Did you mean {meant!r}?" if meant in jobs else ""
    elsewhere = "" if path == CONFIG_NAME else " `--path` names the folder of another file, `--path .` the top."
    return UserError(f"There is no job {typed!r} in {path}.{guess}", hint=f"Jobs: {', '.join(jobs)}.{elsewhere}")


def named_folder(typed: str) -> str:
    """From the top of the checkout, as `--path` names it; empty for the top. Raises UserError."""
    if typed in (".", "./"):
        return ""
    try:
        return typed_folder(typed)
    except ValueError as fault:
        raise UserError(f"--path {typed} {fault}.", hint="It starts at the top: --path sub.") from fault


@dataclass(frozen=True, slots=True)
class FileOnDisk:
    """A `.gpurun.yml` as it is now."""

    folder: str
    """That holds it, from the top of the checkout; empty for the top."""
    file: Path
    """By a short name."""


def file_on_disk(typed: str | None) -> FileOnDisk:
    """The file of that folder; None: the nearest one, from this folder up to the top, else the one at the top.

    Without a checkout this folder is the top. Raises UserError for a folder that is none.
    """
    try:
        here = Path.cwd()
    except OSError:  # the folder was deleted under us
        return FileOnDisk("", Path(CONFIG_NAME))
    # a file in worktrees; git itself is not asked, starting it takes longer
    top = next((one for one in (here, *here.parents) if (one / ".git").exists()), here)
    folder = _nearest(here, top) if typed is None else named_folder(typed)
    return FileOnDisk(folder, Path(os.path.relpath(top / config_path(folder), here)))


def _nearest(here: Path, top: Path) -> str:
    for folder in (here, *here.parents):
        if (folder / CONFIG_NAME).is_file():
            return "" if folder == top else folder.relative_to(top).as_posix()
        if folder == top:
            break
    return ""


def read_config(file: Path) -> bytes:
    """Raises UserError."""
    try:
        return file.read_bytes()
    except OSError as error:
        hint = "`--path` names the folder of another one." if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"{file} cannot be read: {error.strerror}.", hint=hint) from error
