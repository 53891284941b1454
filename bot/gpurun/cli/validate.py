"""`gpurun validate`."""

from __future__ import annotations

from pathlib import Path

import click

from gpurun.domain.config import Config
from gpurun.domain.errors import ConfigError
from gpurun.plan.load import check, explain


def validate_file(file: Path) -> int:
    """Exit code 0 when the file can be used, else 2 with every fault on stderr."""
    text = file.read_bytes() if file.is_file() else None
    found = check(text)
    if isinstance(found, Config):
        jobs = ", ".join(found.jobs)
        click.echo(f"{file} is fine. Jobs: {jobs}.")
        return 0
    for error in found:
        show_config_error(error, text, str(file))
    return 2


def show_config_error(error: ConfigError, text: bytes | str | None, file: str) -> None:
    """The place, the line with a caret, and what to do."""
    click.echo(explain(error, text).replace(".gpurun.yml", file, 1), err=True)
