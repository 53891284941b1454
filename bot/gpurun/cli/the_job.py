"""The job that was typed, of the file that was read. Loads nothing that could run one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gpurun.cli.the_file import file_on_disk, read_config, top_of
from gpurun.cli.trouble import first_of_ours, tell
from gpurun.cli.validate import show_config_error
from gpurun.command.parse import suggest
from gpurun.domain.config import Config
from gpurun.domain.errors import ConfigError, GpurunError, NoGit, UserError
from gpurun.domain.folder import A_FOLDER, CONFIG_NAME, not_a_file
from gpurun.domain.ids import JobName
from gpurun.plan.load import job_names, load

T = TypeVar("T")


class BrokenFile(UserError):
    """The file that was meant has a fault."""

    def __init__(self, fault: ConfigError, text: bytes | None, path: str) -> None:
        super().__init__(str(fault).replace(CONFIG_NAME, path, 1), hint=fault.hint)
        self.fault = fault
        self.text = text
        self.path = path


def config_of(raw: bytes | None, path: str = CONFIG_NAME, *, start: Path | None = None) -> Config:
    """Raises BrokenFile, also when there is none; then it names those of other folders of the checkout of `start`."""
    try:
        return load(raw)
    except ConfigError as fault:
        if raw is None:
            from gpurun.cli.other_files import hint_by_path  # only for who has no file

            if (top_of(start) / path).is_dir():
                raise not_a_file(path, A_FOLDER) from fault

            fault.hint = hint_by_path(start) or fault.hint
        raise BrokenFile(fault, raw, path) from fault


def job_of(config: Config, typed: str, path: str = CONFIG_NAME) -> JobName:
    """Raises UserError for a job that the file does not have."""
    jobs = job_names(config)
    if typed not in jobs:
        raise unknown_job(typed, jobs, path)
    return JobName(typed)


def which_jobs(command: str, path: str | None, start: Path | None) -> str:
    """What to type after `command` for a job of the file that is meant; what is wrong when there is none to take."""
    try:
        file = file_on_disk(path, start).file
        jobs = job_names(load(read_config(file)))
    except ConfigError:
        return f"`gpurun validate {shlex.quote(str(file))}` says what is wrong with the file that has the jobs."
    except UserError as error:
        return f"{error} {error.hint}".strip()
    if len(jobs) > 1:
        return f"Jobs: {', '.join(jobs)}."
    options = f" --path {shlex.quote(path)}" if path is not None else ""
    options += f" --checkout {shlex.quote(str(start))}" if start is not None and start != Path() else ""
    return f"There is one job: `{command} {jobs[0]}{options}`."


def unknown_job(typed: str, jobs: Sequence[str], path: str = CONFIG_NAME) -> UserError:
    """With the one that was probably meant, and all that there are."""
    meant = suggest(typed, jobs)
    guess = f" Did you mean {meant!r}?" if meant in jobs else ""
    elsewhere = "" if path == CONFIG_NAME else " `--path` names the folder of another file, `--path .` the top."
    return UserError(f"There is no job {typed!r} in {path}.{guess}", hint=f"Jobs: {', '.join(jobs)}.{elsewhere}")


def or_code(command: str, work: Callable[[], T]) -> T | int:
    """What the work gives, or the exit code when the person has been told why it gives nothing."""
    try:
        return work()
    except BrokenFile as error:
        show_config_error(error.fault, error.text, error.path)
        return 2
    except (GpurunError, BaseExceptionGroup) as error:
        ours = first_of_ours(error)
        if ours is None:
            raise
        tell(command, ours)
        return 2 if isinstance(ours, UserError | NoGit) else 3
