"""What a shell shows at the tab key. Asked at each key press, so nothing heavy is imported, and nothing ever fails."""

from __future__ import annotations

import re
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from gpurun.cli.the_file import file_on_disk
from gpurun.plan.source import MAX_BYTES

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_GPURUN_COMPLETE"

_JOB = re.compile(r"""(?P<indent> +|\t*)(?P<quote>["']?)(?P<name>[a-z0-9][a-z0-9._-]{0,62})(?P=quote)\s*:(?:\s|$)""")


def script(shell: str) -> str:
    """What the shell has to read once, at its start."""
    found = get_completion_class(shell)
    assert found is not None  # `shell` is one of SHELLS
    made = found(click.Command("gpurun"), {}, "gpurun", VARIABLE)
    # not `source()`: for bash that starts one, to look at its version
    return made.source_template % made.source_vars()


def complete_job(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs of the `.gpurun.yml` that the command would take, with the `--path` and `--checkout` that were typed."""
    try:
        found = file_on_disk(context.params.get("path"), context.params.get("checkout"))
        text = _text_of(found.file)
        return [CompletionItem(name) for name in job_names(text) if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a person is typing; a message would land in the line
        return []


def job_names(text: str) -> tuple[str, ...]:
    """As a quick look at the lines has them: exact for files written line by line, nothing for others."""
    names: list[str] = []
    depth = -1
    lines = iter(text.split("\n"))
    for line in lines:
        if re.fullmatch(r"""["']?jobs["']?\s*:\s*(?:#.*)?""", line.rstrip("\r")):
            break
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        if indent == 0:
            break
        depth = indent if depth < 0 else depth
        found = _JOB.match(line)
        if indent == depth and found:
            names.append(found["name"])
    return tuple(names)


def _text_of(config: Path) -> str:
    if not config.is_file():  # opening a pipe would wait for ever
        return ""
    with config.open("rb") as file:
        return file.read(MAX_BYTES).decode("utf-8", "replace")
