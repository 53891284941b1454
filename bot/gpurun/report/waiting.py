"""Why a run waits: its place, the limit that holds it, and when it gives up."""

from __future__ import annotations

from gpurun.domain.gate import Pause
from gpurun.domain.run import RunState
from gpurun.report.facts import RunFacts
from gpurun.report.text import clock, code, prose


def why_waiting(facts: RunFacts) -> str:
    """Sentences of Markdown; empty for a run that does not wait for others."""
    run = facts.run
    if run.cancel_at is not None:
        return ""
    if facts.pause is not None and run.state in (RunState.PLANNING, RunState.QUEUED, RunState.WAITING_APPROVAL):
        return paused_words(facts.pause)
    queue = facts.queue
    if queue is None:
        return ""
    parts = [prose(run.detail, 300)] if run.detail else []
    if queue.before is not None:
        parts.append(_place(queue.before, facts))
    if queue.gives_up_at is not None:
        parts.append(f"It gives up at {clock(queue.gives_up_at)} on {queue.gives_up_at:%Y-%m-%d}.")
    elif queue.before is not None:
        parts.append("It does not give up: places come free as others end.")
    return " ".join(parts)


def paused_words(pause: Pause) -> str:
    """Who paused the repository, since when and why, and what ends it."""
    since = f"{clock(pause.at)} on {pause.at:%Y-%m-%d}"
    return (
        f"This repository is paused by {code(pause.by)} since {since}: {as_sentence(pause.reason)} "
        f"Nothing starts until somebody with the right writes {code('/gpurun resume')}."
    )


def as_sentence(reason: str) -> str:
    """What a person gave as a reason, as Markdown before another sentence."""
    return prose(reason if reason.endswith((".", "!", "?")) else f"{reason}.", 1000)


def _place(before: int, facts: RunFacts) -> str:
    at = clock(facts.now)
    match before:
        case 0:
            return f"It was the next in line at {at}."
        case 1:
            return f"1 run was before it in line at {at}."
        case _:
            return f"{before} runs were before it in line at {at}."
