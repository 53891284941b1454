"""Answers to those who only ask: the jobs, what goes on, the end of a log. Each is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpurun.domain.gate import Pause
from gpurun.domain.quantity import GpuNeed, written_size
from gpurun.report import pieces
from gpurun.report.comment import title
from gpurun.report.facts import RunFacts
from gpurun.report.headline import cost_words, status
from gpurun.report.text import clock, code, duration, link, prose, table
from gpurun.report.waiting import paused_words, why_waiting

MAX_ROWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """A job of a file at the head."""

    command: str
    """What starts it."""
    gpu: GpuNeed | None
    required: bool
    """A merge needs it, as far as that is known."""
    last: RunFacts | None
    """Its newest run on this pull request."""


def jobs_text(lines: Sequence[JobLine], *, has_fault: bool) -> str:
    """The table of jobs. `has_fault`: a file that was read cannot be understood."""
    if not lines:
        fault = f" `.gpurun.yml` has a fault, and {code('gpurun validate')} says where."
        return "No job was found at the head of this pull request." + (fault if has_fault else "")
    rows = [
        (
            code(line.command),
            _gpu(line.gpu),
            "yes" if line.required else "no",
            _cost(line.last),
            _outcome(line.last),
        )
        for line in lines[:MAX_ROWS]
    ]
    more = f"\n\nAnd {len(lines) - MAX_ROWS} more jobs." if len(lines) > MAX_ROWS else ""
    return table(("job", "GPU", "required", "last cost", "last run here"), *rows) + more


def _gpu(need: GpuNeed | None) -> str:
    if need is None or not need.count:
        return "none"
    least = written_size(need.vram_min_mib) if need.vram_min_mib else ""
    most = f"..{written_size(need.vram_max_mib)}" if need.vram_max_mib else ""
    return f"{need.count} × {least}{most}" if least or most else str(need.count)


def _cost(last: RunFacts | None) -> str:
    return (cost_words(last) if last else "") or "not known"


def _outcome(last: RunFacts | None) -> str:
    if last is None:
        return "never"
    now = status(last)
    return f"{now.symbol} {link(now.word, last.run_url)} at {code(last.run.sha[:12])}"


def status_text(live: Sequence[RunFacts], *, pause: Pause | None, now: datetime) -> str:
    """What goes on for the pull request at this moment."""
    head = f"{paused_words(pause)}\n\n" if pause else ""
    if not live:
        return f"{head}Nothing goes on for this pull request. {code('/gpurun list')} shows the jobs."
    lines = [_live(facts, now) for facts in live[:MAX_ROWS]]
    more = [f"- and {len(live) - MAX_ROWS} more runs"] if len(live) > MAX_ROWS else []
    return head + f"What goes on for this pull request, at {clock(now)}:\n\n" + "\n".join([*lines, *more])


def _live(facts: RunFacts, now: datetime) -> str:
    run, at = facts.run, status(facts)
    since = pieces.since(facts)
    note = "" if run.is_held or facts.queue else at.note
    words = [
        f"{at.symbol} {prose(pieces.job_name(run), 200)}: {at.word}",
        f"since {clock(since)} ({duration((now - since).total_seconds())})",
        f"cost so far {cost_words(facts)}" if facts.costs else "no cost so far",
        f"run {link(code(run.id), facts.run_url)}",
    ]
    told = ". ".join(part for part in (prose(note, 300), why_waiting(facts)) if part)
    return f"- {' · '.join(words)}" + (f". {told}" if told else "")


def log_text(facts: RunFacts) -> str:
    """The last lines of the log, in a fence that none of them closes."""
    about, lines = pieces.log(facts)
    name = f"**{title(facts)}**"
    if not about:
        return f"{name}\n\nThis run has no log yet. {why_waiting(facts)}".rstrip()
    page = f"\n\nThe whole log is on the {link('run page', facts.run_url)}." if facts.run_url else ""
    return f"{name}\n\n{about}:\n\n{lines}{page}"
