"""The one table of commands. Parser, help text and reference page are derived from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpurun.domain.command import Approve, Cancel, Command, Help, Revoke, RunJob
from gpurun.domain.command_words import WORDS_PLANNED
from gpurun.domain.errors import Bug
from gpurun.domain.ids import CommitSha
from gpurun.domain.money import usd_micro, usd_text


class Who(StrEnum):
    """Permission class."""

    RUN = "run"
    """Write access to the repository."""
    OWN_RUN = "own-run"
    """Write access, or the person who started the run."""
    APPROVE = "approve"
    """The right to let code of others run."""
    ANYONE = "anyone"


class Argument(StrEnum):
    """What may stand behind the word."""

    NONE = ""
    JOB = "<job>"
    OPTIONAL_JOB = "[job]"


PATH = "path"
SHA = "sha"
MAX_COST = "max-cost"
USAGE = {PATH: f"[{PATH}=<folder>]", SHA: f"{SHA}=<40 hex>", MAX_COST: f"[{MAX_COST}=<usd>]"}
"""The `key=value` arguments of this version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One command."""

    word: str
    argument: Argument
    who: Who
    help: str
    """One sentence."""
    make: Callable[[str | None, Mapping[str, str]], Command]
    """From the job's name, or None, and the arguments. Raises ValueError with a sentence, and often a second one that
    says what to write instead.
    """
    keys: tuple[str, ...] = ()
    """Its arguments."""
    short: str = ""
    """A shorter way to type the same, without the prefix; empty for none. `" "` is the bare prefix."""

    def usage(self, prefix: str = "/gpurun") -> tuple[str, ...]:
        """Every way to type it, shortest first."""
        behind = "".join(f" {USAGE[key]}" for key in self.keys)
        full = f"{prefix} {self.word} {self.argument}".rstrip() + behind
        return (f"{prefix} {self.short}".rstrip() + behind, full) if self.short else (full,)


def _run(job: str | None, given: Mapping[str, str]) -> Command:
    if job is None:
        raise Bug("the table lets `run` through without a job")
    return RunJob(job, given.get(PATH, ""))


def _approve(_job: str | None, given: Mapping[str, str]) -> Command:
    typed = given.get(SHA)
    if typed is None:
        raise ValueError(
            f"an approval is for one commit. Write `{SHA}=` and the 40 digits of the commit that you have looked at"
        )
    if not re.fullmatch("[0-9a-fA-F]{40}", typed):
        raise ValueError(f"`{SHA}=` needs all 40 hex digits of the commit. Its page shows them")
    cost = given.get(MAX_COST)
    return Approve(CommitSha(typed.lower()), None if cost is None else usd_micro(cost))


TABLE: tuple[Entry, ...] = (
    Entry(
        word="run",
        argument=Argument.JOB,
        who=Who.RUN,
        help="Run a job of `.gpurun.yml` at the newest commit of this pull request.",
        make=_run,
        keys=(PATH,),
        short=Argument.JOB,
    ),
    Entry(
        word="cancel",
        argument=Argument.OPTIONAL_JOB,
        who=Who.OWN_RUN,
        help="Stop the running job of that name, or everything that runs for this pull request.",
        make=lambda job, given: Cancel(job, given.get(PATH, "")),
        keys=(PATH,),
    ),
    Entry(
        word="approve",
        argument=Argument.NONE,
        who=Who.APPROVE,
        help="Let this commit of a fork, or of an author who may not push, run. The next push ends that.",
        make=_approve,
        keys=(SHA, MAX_COST),
    ),
    Entry(
        word="revoke",
        argument=Argument.NONE,
        who=Who.APPROVE,
        help="End the approval of this pull request, and what runs under it.",
        make=lambda _job, _given: Revoke(),
    ),
    Entry(
        word="help",
        argument=Argument.NONE,
        who=Who.ANYONE,
        help="Show the commands and the jobs.",
        make=lambda _job, _given: Help(),
        short=" ",
    ),
)

BY_WORD = {entry.word: entry for entry in TABLE}

WHO_TEXT = {
    Who.RUN: "people with write access",
    Who.OWN_RUN: "people with write access, and whoever started the run",
    Who.APPROVE: "people with the role maintain",
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
        case Approve():
            return BY_WORD["approve"]
        case Revoke():
            return BY_WORD["revoke"]
        case Help():
            return BY_WORD["help"]


def render(command: Command, *, prefix: str = "/gpurun") -> str:
    """The shortest line that parses to this command."""
    match command:
        case RunJob(job, path):
            words = [job, *_argument(PATH, path)]
        case Cancel(job, path):
            words = ["cancel", *([job] if job else []), *_argument(PATH, path)]
        case Approve(sha, most):
            words = ["approve", f"{SHA}={sha}", *_argument(MAX_COST, "" if most is None else usd_text(most))]
        case Revoke():
            words = ["revoke"]
        case Help():
            words = ["help"]
    return " ".join([prefix, *words])


def _argument(key: str, value: str) -> list[str]:
    return [f"{key}={value}"] if value else []


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
