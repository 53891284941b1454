"""`gpurun config show`: a job as it is, with where each value was written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpurun.cli.paper import lay_out, paper
from gpurun.cli.the_file import file_on_disk, read_config
from gpurun.cli.the_job import config_of, job_of, or_code
from gpurun.domain.folder import config_path
from gpurun.domain.text import clean
from gpurun.plan.origin import Setting, Source, settings_of

NOTHING = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A job of a file."""

    name: str
    """Of the file, from the top of the checkout."""
    file: Path
    """From the current folder."""
    settings: tuple[Setting, ...]


def show_people(job: str, path: str | None) -> int:
    """A table on stdout. Exit code 0; 2 when the file cannot be used or has no such job."""
    shown = or_code("gpurun config show", lambda: _shown(job, path))
    if isinstance(shown, int):
        return shown
    console = paper()
    console.print(Text(f"{job} · {shown.name}", "bold"), soft_wrap=True)
    lay_out(console, _table(job, shown.settings, console))
    return 0


def show_json(job: str, path: str | None) -> int:
    """One JSON object on stdout. Exit code as `show_people`."""
    shown = or_code("gpurun config show", lambda: _shown(job, path))
    if isinstance(shown, int):
        return shown
    rows = [{"key": one.key, "value": one.value, "source": one.source, "line": one.line} for one in shown.settings]
    click.echo(json.dumps({"job": job, "file": str(shown.file), "settings": rows}, indent=2, ensure_ascii=False))
    return 0


def _shown(job: str, path: str | None) -> Shown:
    """Raises BrokenFile and UserError."""
    found = file_on_disk(path)
    file = found.file
    raw = read_config(file)
    return Shown(
        name=config_path(found.folder),
        file=file,
        settings=settings_of(raw, job_of(config_of(raw, str(file)), job, str(file))),
    )


def _table(job: str, settings: tuple[Setting, ...], console: Console) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("Key", no_wrap=True)
    table.add_column("Value", overflow="fold")
    table.add_column("From", overflow="fold" if console.is_terminal else "ignore")
    kind = next(str(one.value) for one in settings if one.key == "kind")
    for one in settings:
        written = one.line > 0
        style = "" if written else "dim"
        table.add_row(
            Text(clean(one.key), style),
            Text(_value(one), style),
            Text(_from(one, job, kind), "cyan" if written else style),
        )
    return table


def _value(setting: Setting) -> str:
    """A list and a longer text on several lines."""
    if not isinstance(setting.value, str):
        return "\n".join(clean(item) for item in setting.value)
    if not setting.value:
        return '""' if setting.line and setting.key not in ("models", "datasets") else NOTHING
    return clean(setting.value.removesuffix("\n"))


def _from(setting: Setting, job: str, kind: str) -> str:
    match setting.source:
        case Source.JOB:
            return f"jobs.{job}, line {setting.line}"
        case Source.DEFAULTS:
            return f"defaults, line {setting.line}"
        case Source.PRESET:
            return f"preset of kind {kind}"
        case Source.BUILT_IN:
            return "built-in" if setting.value else "not set"
