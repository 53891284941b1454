"""Answers to command lines that make no run: one comment for all lines of one comment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpurun.domain.errors import UserError
from gpurun.report.limits import COMMENT_BYTES
from gpurun.report.text import code, cut, prose

MAX_JOBS = 50


def join(said: Sequence[str]) -> str:
    """One answer as it is, several as a list; what was said twice is said once. A table stands below the list."""
    unique = list(dict.fromkeys(said))
    if len(unique) == 1:
        return cut(unique[0], COMMENT_BYTES)
    lines = [f"- {one}" for one in unique if "\n" not in one]
    blocks = [one for one in unique if "\n" in one]
    return cut("\n\n".join(["\n".join(lines), *blocks] if lines else blocks), COMMENT_BYTES)


def error(fault: UserError) -> str:
    """Its message and what to do."""
    return prose(f"{fault.message} {fault.hint}".strip(), 2000)


def unknown_job(job: str, jobs: Iterable[str], meant: str | None) -> str:
    """The jobs there are, and the one that was probably meant."""
    names = list(jobs)
    listed = ", ".join(code(name) for name in names[:MAX_JOBS])
    more = f" and {len(names) - MAX_JOBS} more" if len(names) > MAX_JOBS else ""
    guess = f" Did you mean {code(f'/gpurun {meant}')}?" if meant else ""
    return f"There is no job {code(job, 80)} in `.gpurun.yml`.{guess} Jobs: {listed}{more}."


def closed() -> str:
    """The pull request is closed or merged."""
    return (
        "This pull request is closed, so nothing was started. "
        "Reopen it if it was not merged, or write the command on an open one."
    )


def nothing_to_cancel(job: str | None) -> str:
    """No live run of that job, or none at all."""
    what = f"No run of {code(job, 80)}" if job else "No run"
    return f"{what} is going on for this pull request, so there was nothing to cancel."


def gave_up() -> str:
    """Reading the comment or its pull request failed, several times."""
    return (
        "This comment was not acted on: GitHub did not answer several times, or gpurun itself failed. "
        "Write the command again."
    )


def not_allowed_to_look() -> str:
    """GitHub refused a call that every command needs."""
    return (
        "This comment was not acted on: GitHub did not let gpurun read what it needs for that. "
        "Its log names the call; perhaps somebody has to accept new permissions of the App."
    )


def not_by_comment(job: str) -> str:
    """The file says so."""
    return (
        f"Comments do not start {code(job)}: its `trigger` says `comment: false`. `gpurun run {job}` runs it locally."
    )
