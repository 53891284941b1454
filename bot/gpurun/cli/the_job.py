"""The job that was typed, of the file that was read. Loads nothing that could run one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpurun.command.parse import suggest
from gpurun.domain.config import Config
from gpurun.domain.errors import ConfigError, UserError
from gpurun.domain.ids import JobName
from gpurun.plan.load import job_names, load

CONFIG_PATH = ".gpurun.yml"
CONFIG_MAX_BYTES = 64 * 1024


class BrokenFile(UserError):
    """The file that was meant has a fault."""

    def __init__(self, fault: ConfigError, text: bytes | None, file: str = CONFIG_PATH) -> None:
        super().__init__(str(fault), hint=fault.hint)
        self.fault = fault
        self.text = text
        self.file = file


def config_of(raw: bytes | None, file: str = CONFIG_PATH) -> Config:
    """Raises BrokenFile, also when there is none."""
    try:
        return load(raw)
    except ConfigError as fault:
        raise BrokenFile(fault, raw, file) from fault


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


def read_config(file: Path) -> bytes:
    """Raises UserError."""
    try:
        return file.read_bytes()
    except OSError as error:
        hint = "`gpurun validate FILE` checks a file elsewhere." if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"{file} cannot be read: {error.strerror}.", hint=hint) from error
