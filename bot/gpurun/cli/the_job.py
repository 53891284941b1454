"""The job that was typed, of the file that was read. Loads nothing that could run one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from gpurun.command.parse import suggest
from gpurun.domain.config import Config
from gpurun.domain.errors import ConfigError, UserError
from gpurun.domain.ids import JobName
from gpurun.plan.load import job_names, load

CONFIG_PATH = ".gpurun.yml"
CONFIG_MAX_BYTES = 64 * 1024


class BrokenFile(UserError):
    """The file that was meant has a fault."""

    def __init__(self, fault: ConfigError, text: bytes | None, path: str) -> None:
        super().__init__(str(fault).replace(CONFIG_PATH, path, 1), hint=fault.hint)
        self.fault = fault
        self.text = text
        self.path = path


def config_of(raw: bytes | None, path: str = CONFIG_PATH) -> Config:
    """Raises BrokenFile, also when there is none."""
    try:
        return load(raw)
    except ConfigError as fault:
        raise BrokenFile(fault, raw, path) from fault


def job_of(config: Config, typed: str) -> JobName:
    """Raises UserError for a job that the file does not have."""
    jobs = job_names(config)
    if typed not in jobs:
        raise unknown_job(typed, jobs)
    return JobName(typed)


def unknown_job(typed: str, jobs: Sequence[str]) -> UserError:
    """With the one that was probably meant, and all that there are."""
    meant = suggest(typed, jobs)
    guess = f" Did you mean {meant!r}?" if meant in jobs else ""
    return UserError(f"There is no job {typed!r} in {CONFIG_PATH}.{guess}", hint=f"Jobs: {', '.join(jobs)}.")


def named_folder(typed: str | None) -> str:
    """From the top of the checkout, as `--path` names it; empty for the top. Raises UserError."""
    path = PurePosixPath(typed or "")
    if path.is_absolute() or ".." in path.parts:
        raise UserError(f"--path {typed} is no folder inside the checkout.", hint="It starts at the top: --path sub.")
    return "" if path == PurePosixPath() else str(path)


def below(folder: str, name: str) -> str:
    """A file of that folder, from the top of the checkout."""
    return f"{folder}/{name}" if folder else name


def file_on_disk(folder: str) -> Path:
    """`.gpurun.yml` of that folder as it is now, by a short name. Without a checkout this folder is the top."""
    try:
        here = Path.cwd()
    except OSError:  # the folder was deleted under us
        return Path(below(folder, CONFIG_PATH))
    top = next((one for one in (here, *here.parents) if (one / ".git").exists()), here)
    return Path(os.path.relpath(top / below(folder, CONFIG_PATH), here))


def read_config(file: Path) -> bytes:
    """Raises UserError."""
    try:
        return file.read_bytes()
    except OSError as error:
        hint = "`--path` names the folder of another one." if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"{file} cannot be read: {error.strerror}.", hint=hint) from error
