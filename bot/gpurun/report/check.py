"""The check of a run, by one table of conclusions. Never neutral or skipped: both pass a required check."""

from __future__ import annotations

from gpurun.domain.forge import Annotation, Check, CheckStatus, Conclusion
from gpurun.domain.run import Fault, Run, RunState, Verdict
from gpurun.report import pieces
from gpurun.report.buttons import run_buttons
from gpurun.report.comment import next_command, progress, title
from gpurun.report.facts import RunFacts
from gpurun.report.headline import status, took
from gpurun.report.limits import CHECK_BYTES, within
from gpurun.report.request import allowed_by, asking
from gpurun.report.standing import WAITS_FOR_A_PERSON
from gpurun.report.text import clock, code, link, plain, prose
from gpurun.report.why import why

_CONCLUSIONS: dict[Verdict, Conclusion] = {
    Verdict.PASSED: "success",
    Verdict.FAILED: "failure",
    Verdict.TIMEOUT: "timed_out",
    Verdict.LOST: "failure",
    Verdict.CANCELLED: "cancelled",
    Verdict.REFUSED: "failure",
}


def check_name(run: Run) -> str:
    """`gpurun / smoke`, or `gpurun / smoke (sub)` for the job of a file in a sub-folder."""
    return f"gpurun / {pieces.job_name(run)}"


def render_check(facts: RunFacts) -> Check:
    """Within GitHub's limits."""
    about, log = pieces.log(facts)
    summary = _summary(facts)
    if len(summary.encode()) > CHECK_BYTES:  # a part of Markdown may mean something else than the whole
        summary = _short(facts)
    return within(_check(facts, summary=summary, text=f"{about}\n\n{log}" if about else ""))


def minimal_check(facts: RunFacts) -> Check:
    """For a forge that refused the full one: title, conclusion and the run page."""
    return within(_check(facts, summary=_short(facts), text=""))


def conclusion(run: Run) -> Conclusion | None:
    """None while it runs."""
    if run.verdict is Verdict.REFUSED and run.reason in WAITS_FOR_A_PERSON:
        return "action_required"
    if run.verdict is not None:
        return _CONCLUSIONS[run.verdict]
    if run.is_held or run.state is RunState.WAITING_APPROVAL:
        return "action_required"
    return None


def _check(facts: RunFacts, *, summary: str, text: str) -> Check:
    run = facts.run
    ended = conclusion(run)
    return Check(
        name=check_name(run),
        external_id=run.id,
        status=CheckStatus.IN_PROGRESS if ended is None else CheckStatus.COMPLETED,
        conclusion=ended,
        title=_title(facts),
        summary=summary,
        text=text,
        details_url=facts.run_url,
        started_at=run.created_at,
        completed_at=None if ended is None else run.ended_at or facts.now,
        annotations=_annotations(run),
        actions=run_buttons(run),
    )


def _title(facts: RunFacts) -> str:
    run, now, said = facts.run, status(facts), why(facts)
    match run.verdict:
        case None if facts.request is not None and run.cancel_at is None:
            return plain(f"{now.word}: {facts.request.command}")
        case None if run.state is RunState.PLANNING and run.cancel_at is None and not run.paused:
            # what is said first stands for minutes: a check is seldom edited
            return f"in progress since {clock(run.created_at)}"
        case None:
            note = ", ".join(part for part in (now.note, _place(facts)) if part)
            return plain(f"{now.word}: {note}" if note else now.word)
        case Verdict.PASSED:
            return f"passed in {took(facts)}"
        case Verdict.LOST | Verdict.REFUSED:
            where = f"{pieces.config_path(run)} line {run.error_line}: " if run.error_line else ""
            return plain(f"{now.word}: {where}{said.sentence}")
        case _:
            return plain(f"{said.sentence} {said.evidence}")


def _place(facts: RunFacts) -> str:
    before = facts.queue.before if facts.queue else None
    return "" if not before else f"{pieces.counted(before, 'run')} before it"


def _short(facts: RunFacts) -> str:
    page = f"Everything else is on the {link('run page', facts.run_url)}." if facts.run_url else ""
    return "\n\n".join(part for part in (f"**{title(facts)}**", prose(why(facts).sentence), page) if part)


def _summary(facts: RunFacts) -> str:
    said = why(facts)
    parts = [
        f"**{title(facts)}**",
        progress(facts),
        asking(facts),
        allowed_by(facts),
        prose(said.sentence, 1500),
        code(said.evidence),
        pieces.config_line(facts.run),
        pieces.starter(facts.run),
        pieces.notes(facts.run),
        pieces.pins(facts),
        pieces.times(facts),
        pieces.attempts(facts),
        pieces.cost(facts),
        pieces.metrics(facts.summary),
        pieces.gpu_trouble(facts),
        pieces.artifacts(facts),
        next_command(facts),
        link("Run page", facts.run_url) if facts.run_url else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _annotations(run: Run) -> tuple[Annotation, ...]:
    if run.verdict is not Verdict.REFUSED:
        return ()
    faults = run.faults or _one_fault(run)
    return tuple(
        Annotation(path=fault.file, line=fault.line, title=check_name(run), message=plain(fault.text, 10_000))
        for fault in faults
    )


def _one_fault(run: Run) -> tuple[Fault, ...]:
    if not run.error_line:
        return ()
    return (Fault(file=pieces.config_path(run), line=run.error_line, text=run.detail),)
