"""The reference pages of the settings and of the command line, from the code that they describe."""

from __future__ import annotations

import click
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from gpurun.cli.main import cli
from gpurun.report.terminal import RunResult
from gpurun.settings import Settings

_PREFIX = "GPURUN_"
_ONLY_TESTS = frozenset({"failpoint", "allow_failpoints"})


def settings_page() -> str:
    """Text of `docs/reference/settings.md`."""
    return "\n".join(
        [
            "# Settings",
            "",
            "<!-- Generated from bot/gpurun/settings.py. Write it anew with `make docs`. -->",
            "",
            "`gpurun serve`, `gpurun db` and `gpurun audit` read environment variables and no file. `gpurun run` reads",
            "the same ones, but none of GitHub, the database and the web server. A value that cannot be used ends the",
            "command and names the setting. Another name that begins with `GPURUN_` is told and has no effect.",
            "",
            "| Variable | Default | Meaning |",
            "|---|---|---|",
            *(_row(name, field) for name, field in Settings.model_fields.items() if name not in _ONLY_TESTS),
            "",
            "Secrets are never logged and never given to a job.",
            "",
            "Docker's own variables (`DOCKER_HOST`, `DOCKER_TLS_VERIFY`, `DOCKER_CERT_PATH`) count when",
            "`GPURUN_DOCKER_HOST` is empty. Logins to image registries come from the `config.json` that `docker login`",
            "writes for the user that runs gpurun.",
            "",
        ]
    )


def _row(name: str, field: FieldInfo) -> str:
    meaning = " ".join((field.description or "").split())
    for other in Settings.model_fields:
        meaning = meaning.replace(f"`{other}`", f"`{_PREFIX}{other.upper()}`")
    return f"| `{_PREFIX}{name.upper()}` | {_default(field.default)} | {meaning} |"


def _default(value: object) -> str:
    if isinstance(value, SecretStr) or value is None or value == "":
        return ""
    return f"`{value}`"


def cli_page() -> str:
    """Text of `docs/reference/cli.md`."""
    return "\n".join(
        [
            "# The command line",
            "",
            "<!-- Generated from bot/gpurun/cli and bot/gpurun/report/terminal.py. Write it anew with `make docs`. -->",
            "",
            *(line for path, command in _commands(cli, ("gpurun",)) for line in _help(path, command)),
            "## `gpurun run`: exit codes",
            "",
            "| Code | Meaning |",
            "|---|---|",
            "| 0 | passed |",
            "| 1 | failed, or longer than `max_duration` |",
            "| 2 | nothing ran: wrong usage, a faulty file or setting, a pin or a machine that is not there |",
            "| 3 | lost: no Docker Engine answers, or the engine, a registry or the hub failed |",
            "| 4 | passed, but not every artifact could be written where it was wanted; stderr says where it is |",
            "| 130 | cancelled: Ctrl-C, SIGTERM, a closed terminal, or a pipe that nobody reads any more |",
            "",
            "For every command: 2 when stdout is closed from the start, told before anything is done, or takes",
            "nothing (a full disk); 141 when nobody reads a pipe any more, without a word. A run that is under way",
            "is cancelled in both cases, with 130.",
            "",
            "## `gpurun run --json`",
            "",
            "stdout is exactly one JSON object with all of these keys, whatever happened, except for words that the",
            "command line does not know (code 2, a usage text on stderr). The log is on stderr, byte for byte unless",
            "that is a terminal. Keys are only ever added.",
            "",
            "| Key | Meaning |",
            "|---|---|",
            *(f"| `{name}` | {' '.join((field.description or '').split())} |" for name, field in _result_keys()),
            "",
            *_LOOKING.splitlines(),
            "",
        ]
    )


_LOOKING = """\
## `gpurun config show --json`

| Key | Meaning |
|---|---|
| `job`, `file` | as typed; the path of the file |
| `settings[].key` | such as `limits.max_duration` |
| `settings[].value` | as written; a list of texts for a list; empty for nothing |
| `settings[].source` | `job`, `defaults`, `preset` or `built-in` |
| `settings[].line` | of the file; 0 when nobody wrote it |

## `gpurun plan --json`

| Key | Meaning |
|---|---|
| `plan` | the fields that the digest is made of, defaults left out; a `sha256` that is not known is empty |
| `tree` | the tree of the commit |
| `digest`, `result_key` | null when the hub was needed and did not answer |
| `notes[]` | sentences for people |

## `gpurun diff --json`

| Key | Meaning |
|---|---|
| `a`, `b` | `commit` and `tree` of each |
| `jobs.<name>.differs` | null when one side has no plan |
| `jobs.<name>.trouble` | why it has none |
| `jobs.<name>.only_in` | `a` or `b`, when the other file does not have the job |
| `jobs.<name>.changes[].group`, `name` | such as `env` and `["SEED"]` |
| `jobs.<name>.changes[].before`, `after` | null when it is not there |
| `jobs.<name>.changes[].size_before`, `size_after` | bytes, of files of models |
| `jobs.<name>.same_digest` | equal plans at the same commit |
| `jobs.<name>.same_result_key` | equal plans at commits with the same files |
| `jobs.<name>.note` | what could not be compared |
"""


def _commands(command: click.Command, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], click.Command]]:
    """Those that do something, in the order in which they are written."""
    if not isinstance(command, click.Group):
        return [(path, command)]
    return [found for name, one in command.commands.items() for found in _commands(one, (*path, name))]


def _help(path: tuple[str, ...], command: click.Command) -> list[str]:
    context: click.Context | None = None
    for name in path[:-1]:
        context = click.Context(cli, parent=context, info_name=name, **cli.context_settings)
    text = command.get_help(click.Context(command, parent=context, info_name=path[-1], terminal_width=100))
    return [f"## `{' '.join(path)}`", "", "```", *(line.rstrip() for line in text.splitlines()), "```", ""]


def _result_keys() -> list[tuple[str, FieldInfo]]:
    return list(RunResult.model_fields.items())
