"""The one table of commands. Parser, help text and reference page are derived from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpurun.domain.command import Cancel, Command, Help, RunJob
from gpurun.domain.command_words import WORDS_PLANNED
from gpurun.domain.errors import Bug


class Who(StrEnum):
    """Permission class."""

    RUN = "run"
    """Write access to the repository."""
    OWN_RUN = "own-run"
    """Write access, or the person who started the run."""
    ANYONE = "anyone"


class Argument(StrEnum):
    """What may stand behind the word."""

    NONE = ""
    JOB = "<job>"
    OPTIONAL_JOB = "[job]"


PATH = "path"
"""The one `key=value` of this version."""
PATH_USAGE = f"[{PATH}=<folder>]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One command."""

    word: str
    argument: Argument
    who: Who
    help: str
    """One sentence."""
    make: Callable[[str | None, str], Command]
    """From the job's name, or None, and the folder, or an empty text."""
    short: str = ""
    """A shorter way to type the same, without the prefix; empty for none. `" "` is the bare prefix."""

    def usage(self, prefix: str = "/gpurun") -> tuple[str, ...]:
        """Every way to type it, shortest first."""
        behind = f" {PATH_USAGE}" if self.argument is not Argument.NONE else ""
        full = f"{prefix} {self.word} {self.argument}".rstrip() + behind
        return (f"{prefix} {self.short}".rstrip() + behind, full) if self.short else (full,)


def _run(job: str | None, path: str) -> Command:
    if job is None:
        raise Bug("the table lets `run` through without a job")
    return RunJob(job, path)


TABLE: tuple[Entry, ...] = (
    Entry(
        word="run",
        argument=Argument.JOB,
        who=Who.RUN,
        help="Run a job of `.gpurun.yml` at the newest commit of this pull request.",
        make=_run,
        short=Argument.JOB,
    ),
    Entry(
        word="cancel",
        argument=Argument.OPTIONAL_JOB,
        who=Who.OWN_RUN,
        help="Stop the running job of that name, or everything that runs for this pull request.",
        make=Cancel,
    ),
    Entry(
        word="help",
        argument=Argument.NONE,
        who=Who.ANYONE,
        help="Show the commands and the jobs.",
        make=lambda _job, _path: Help(),
        short=" ",
    ),
)

BY_WORD = {entry.word: entry for entry in TABLE}

WHO_TEXT = {
    Who.RUN: "people with write access",
    Who.OWN_RUN: "people with write access, and whoever started the run",
    Who.ANYONE: "anyone",
}

PLANNED = WORDS_PLANNED


def entry_of(command: Command) -> Entry:
    """The row of the table that a command came from."""
    match command:
        case RunJob():
            return BY_WORD["run"]
        case Cancel():
            return BY_WORD["cancel"]
        case Help():
            return BY_WORD["help"]


def render(command: Command, *, prefix: str = "/gpurun") -> str:
    """The shortest line that parses to this command."""
    match command:
        case RunJob(job, path):
            words = [job]
        case Cancel(job, path):
            words = ["cancel", *([job] if job else [])]
        case Help():
            return f"{prefix} help"
    return " ".join([prefix, *words, *([f"{PATH}={path}"] if path else [])])


def help_text(
    jobs: tuple[str, ...] = (), folders: Mapping[str, tuple[str, ...]] | None = None, *, prefix: str = "/gpurun"
) -> str:
    """Markdown for a comment; no line of it is a command. `folders`: the jobs of files below the top."""
    lines = ["| comment | what it does | who |", "|---|---|---|"]
    for entry in TABLE:
        typed = " or ".join(f"`{usage}`" for usage in entry.usage(prefix))
        lines.append(f"| {typed} | {entry.help} | {WHO_TEXT[entry.who]} |")
    if jobs:
        lines += ["", "Jobs here: " + ", ".join(f"`{job}`" for job in jobs) + "."]
    for folder, names in (folders or {}).items():
        lines += ["", f"Jobs with `{PATH}={folder}`: " + ", ".join(f"`{job}`" for job in names) + "."]
    lines += ["", f"`{PATH}=<folder>` takes the `.gpurun.yml` of that folder, such as `{PATH}=examples/demo`."]
    lines += ["", "Write the command at the start of a line of a new comment; edits of old comments start nothing."]
    return "\n".join(lines)
