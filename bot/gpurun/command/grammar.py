"""The one table of commands. Parser, help text and reference page are derived from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpurun.command.arguments import (
    GPU,
    MAX_COST,
    PATH,
    PROVIDER,
    REASON,
    REPEAT,
    SHA,
    USAGE,
    gpu_of,
    provider_of,
    reason_of,
    repeat_of,
    sha_of,
)
from gpurun.domain.command import (
    Approve,
    Cancel,
    CancelOverride,
    Command,
    Help,
    ListJobs,
    Logs,
    OverrideJob,
    PauseRepo,
    ResumeRepo,
    Retry,
    Revoke,
    RunJob,
    Status,
    StopAll,
)
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
    APPROVED_RUN = "approved-run"
    """Write access, or the author of the pull request once its head was approved."""
    APPROVE = "approve"
    """The right to let code of others run."""
    ADMIN = "admin"
    """The right to stop everything."""
    ANYONE = "anyone"


class Argument(StrEnum):
    """What may stand behind the word."""

    NONE = ""
    JOB = "<job>"
    OPTIONAL_JOB = "[job]"
    OPTIONAL_RUN = "[job or run id]"


Given = Mapping[str, str]
"""Arguments by key. Each is one that the command has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One command."""

    word: str
    """One, or two with a space."""
    argument: Argument
    who: Who
    help: str
    """One sentence."""
    make: Callable[[str | None, Given], Command]
    """From the job's name, or None, and the arguments. Raises ValueError with a sentence, and often a second one that
    says what to write instead.
    """
    keys: tuple[str, ...] = ()
    """Its arguments."""
    required: tuple[str, ...] = ()
    """Those of them without which `make` raises."""
    short: str = ""
    """A shorter way to type the same, without the prefix; empty for none. `" "` is the bare prefix."""

    def usage(self, prefix: str = "/gpurun") -> tuple[str, ...]:
        """Every way to type it, shortest first."""
        behind = "".join(f" {USAGE[key] if key in self.required else f'[{USAGE[key]}]'}" for key in self.keys)
        full = f"{prefix} {self.word} {self.argument}".rstrip() + behind
        return (f"{prefix} {self.short}".rstrip() + behind, full) if self.short else (full,)


def _run(job: str | None, given: Given) -> Command:
    cost = given.get(MAX_COST)
    return RunJob(
        _there(job),
        given.get(PATH, ""),
        gpu=gpu_of(given),
        provider=provider_of(given),
        sha=sha_of(given),
        repeat=repeat_of(given),
        max_usd_micro=None if cost is None else usd_micro(cost),
    )


def _there(job: str | None) -> str:
    if job is None:
        raise Bug("the table lets a command through without a job")
    return job


def _approve(_job: str | None, given: Given) -> Command:
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
        keys=(PATH, GPU, PROVIDER, SHA, REPEAT, MAX_COST),
        short=Argument.JOB,
    ),
    Entry(
        word="retry",
        argument=Argument.OPTIONAL_JOB,
        who=Who.APPROVED_RUN,
        help="Run again what failed, timed out or was lost at the newest commit: that job, or every such one.",
        make=lambda job, given: Retry(job, given.get(PATH, "")),
        keys=(PATH,),
    ),
    Entry(
        word="retry all",
        argument=Argument.NONE,
        who=Who.APPROVED_RUN,
        help="Run again every job that ran at the newest commit, however it ended.",
        make=lambda _job, _given: Retry(every=True),
    ),
    Entry(
        word="cancel",
        argument=Argument.OPTIONAL_RUN,
        who=Who.OWN_RUN,
        help="Stop that run, the running job of that name, or everything that runs for this pull request.",
        make=lambda job, given: Cancel(job, given.get(PATH, "")),
        keys=(PATH,),
    ),
    Entry(
        word="list",
        argument=Argument.NONE,
        who=Who.ANYONE,
        help="Show the jobs: GPU, whether a merge needs them, and what their last run here cost and came to.",
        make=lambda _job, _given: ListJobs(),
    ),
    Entry(
        word="status",
        argument=Argument.NONE,
        who=Who.ANYONE,
        help="Show what goes on for this pull request, what it has cost, and what it waits for.",
        make=lambda _job, _given: Status(),
    ),
    Entry(
        word="logs",
        argument=Argument.OPTIONAL_RUN,
        who=Who.ANYONE,
        help="Show the last 50 lines of a run's log; of the newest run when none is named.",
        make=lambda job, given: Logs(job, given.get(PATH, "")),
        keys=(PATH,),
    ),
    Entry(
        word="approve",
        argument=Argument.NONE,
        who=Who.APPROVE,
        help="Let this commit of a fork, or of an author who may not push, run. The next push ends that.",
        make=_approve,
        keys=(SHA, MAX_COST),
        required=(SHA,),
    ),
    Entry(
        word="revoke",
        argument=Argument.NONE,
        who=Who.APPROVE,
        help="End the approval of this pull request, and what runs under it.",
        make=lambda _job, _given: Revoke(),
    ),
    Entry(
        word="override",
        argument=Argument.JOB,
        who=Who.APPROVE,
        help="Let a required job count as passed at this commit. The next push ends that.",
        make=lambda job, given: OverrideJob(_there(job), reason_of(given), given.get(PATH, "")),
        keys=(REASON, PATH),
        required=(REASON,),
    ),
    Entry(
        word="override cancel",
        argument=Argument.OPTIONAL_JOB,
        who=Who.APPROVE,
        help="Take that back, for one job or for all.",
        make=lambda job, given: CancelOverride(job, given.get(PATH, "")),
        keys=(PATH,),
    ),
    Entry(
        word="pause",
        argument=Argument.NONE,
        who=Who.ADMIN,
        help="Start nothing in this repository; what runs goes on, what waits is kept.",
        make=lambda _job, given: PauseRepo(reason_of(given)),
        keys=(REASON,),
        required=(REASON,),
    ),
    Entry(
        word="resume",
        argument=Argument.NONE,
        who=Who.ADMIN,
        help="End the pause.",
        make=lambda _job, _given: ResumeRepo(),
    ),
    Entry(
        word="stop-all",
        argument=Argument.NONE,
        who=Who.ADMIN,
        help="Stop every run of this repository, on all its pull requests.",
        make=lambda _job, _given: StopAll(),
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
    Who.APPROVED_RUN: "people with write access, and the author of a pull request whose head was approved",
    Who.APPROVE: "people with the role maintain",
    Who.ADMIN: "people with the role admin",
    Who.ANYONE: "anyone",
}

PLANNED = WORDS_PLANNED


_WORDS: Mapping[type[Command], str] = {
    RunJob: "run",
    Cancel: "cancel",
    ListJobs: "list",
    Status: "status",
    Logs: "logs",
    Approve: "approve",
    Revoke: "revoke",
    OverrideJob: "override",
    CancelOverride: "override cancel",
    PauseRepo: "pause",
    ResumeRepo: "resume",
    StopAll: "stop-all",
    Help: "help",
}


def entry_of(command: Command) -> Entry:
    """The row of the table that a command came from."""
    return BY_WORD[_word(command)]


def _word(command: Command) -> str:
    if isinstance(command, Retry):
        return "retry all" if command.every else "retry"
    return _WORDS[type(command)]


def render(command: Command, *, prefix: str = "/gpurun") -> str:
    """The shortest line that parses to this command."""
    word = "" if isinstance(command, RunJob) else _word(command)
    return " ".join(part for part in (prefix, word, *_behind(command)) if part)


def _behind(command: Command) -> list[str]:
    """What stands behind the word."""
    match command:
        case RunJob():
            given = {
                PATH: command.path,
                GPU: command.gpu,
                PROVIDER: command.provider,
                SHA: command.sha,
                REPEAT: "" if command.repeat == 1 else str(command.repeat),
                MAX_COST: _cost(command.max_usd_micro),
            }
            return [command.job, *_arguments(given)]
        case Cancel(job, path) | Logs(job, path) | Retry(job, path) | CancelOverride(job, path):
            return [job or "", *_arguments({PATH: path})]
        case Approve(sha, most):
            return _arguments({SHA: sha, MAX_COST: _cost(most)})
        case OverrideJob(job, reason, path):
            return [job, *_arguments({PATH: path, REASON: f'"{reason}"'})]
        case PauseRepo(reason):
            return _arguments({REASON: f'"{reason}"'})
        case _:
            return []


def _cost(usd: int | None) -> str:
    return "" if usd is None else usd_text(usd)


def _arguments(given: Given) -> list[str]:
    return [f"{key}={value}" for key, value in given.items() if value]


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
    narrowing = (
        f"`{GPU}=`, `{PROVIDER}=` and `{MAX_COST}=` narrow what the job and the policy allow, and never widen it."
    )
    lines += [
        "",
        f"{narrowing} `{SHA}=` starts nothing unless that is the newest commit; `{REPEAT}=3` makes three runs.",
    ]
    lines += ["", "Write the command at the start of a line of a new comment; edits of old comments start nothing."]
    return "\n".join(lines)
