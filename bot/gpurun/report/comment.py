"""The one comment of a run. The first line says how it ended; the rest is for whoever asks why."""

from __future__ import annotations

import json
from collections.abc import Callable

from gpurun.domain.folder import job_in
from gpurun.domain.narrow import numbered
from gpurun.domain.run import RunState, Verdict
from gpurun.report import pieces
from gpurun.report.facts import RunFacts
from gpurun.report.headline import cost_words, status, took, where
from gpurun.report.limits import COMMENT_BYTES
from gpurun.report.request import allowed_by, asking
from gpurun.report.text import clock, code, link, prose
from gpurun.report.waiting import why_waiting
from gpurun.report.why import why

MAX_NAMES = 10
_OPEN_LOG = frozenset({Verdict.FAILED, Verdict.TIMEOUT})


def marker(nonce: str) -> str:
    """Hidden text that finds a comment again; `nonce` is the publication's own. Holds no `--`, so HTML stays whole."""
    inside = json.dumps({"gpurun": nonce}, separators=(",", ":")).replace("-", "\\u002d")
    return f"<!-- {inside} -->"


def render_comment(facts: RunFacts) -> str:
    """Markdown, at most COMMENT_BYTES; no line of it is a command."""
    top = [
        f"### {title(facts)}",
        progress(facts),
        asking(facts),
        allowed_by(facts),
        _reason(facts),
        pieces.starter(facts.run),
        pieces.notes(facts.run),
    ]
    below = [
        pieces.pins(facts),
        pieces.times(facts),
        pieces.attempts(facts),
        pieces.cost(facts),
        pieces.metrics(facts.summary),
        pieces.gpu_trouble(facts),
        pieces.artifacts(facts),
        _unconfirmed(facts),
    ]
    ending = [next_command(facts), _footer(facts)]
    fixed = _joined([*top, *below, *ending])
    log = _log_fold(facts)
    # every piece is bounded, so these two guards are for what nobody thought of
    if len(fixed.encode()) > COMMENT_BYTES:
        return minimal_comment(facts)
    if len(fixed.encode()) + len(log.encode()) + 2 > COMMENT_BYTES:
        return fixed
    return _joined([*top, *below, log, *ending])


def minimal_comment(facts: RunFacts) -> str:
    """For a forge that refused the full one: the verdict, the reason and the run page."""
    said = why(facts)
    page = f"Everything else is on the {link('run page', facts.run_url)}." if facts.run_url else ""
    return _joined([f"### {title(facts)}", prose(said.sentence), page])


def title(facts: RunFacts) -> str:
    """`gpurun smoke: ✅ passed · 41 s · $0.00 (declared) · local Docker`, as Markdown."""
    return _title(facts, lambda text: prose(text, 600))


def plain_title(facts: RunFacts) -> str:
    """The same where no Markdown is read; still untrusted text."""
    return _title(facts, str)


def _title(facts: RunFacts, shown: Callable[[str], str]) -> str:
    now, run = status(facts), facts.run
    job = numbered(job_in(shown(run.job), shown(run.folder)), run.narrow)
    words = [
        f"gpurun {job}: {now.symbol} {now.word}",
        took(facts),
        cost_words(facts),
        shown(where(facts)),
    ]
    return " · ".join(word for word in words if word)


def progress(facts: RunFacts) -> str:
    """What happens now, and since when; empty after the end."""
    if facts.run.state is RunState.ENDED:
        return ""
    now, waiting = status(facts), why_waiting(facts)
    note = f": {prose(now.note, 300)}" if now.note and not (waiting and now.word in ("queued", "paused")) else ""
    return f"**{now.word}** since {clock(pieces.since(facts))}{note}" + (f". {waiting}" if waiting else "")


def _reason(facts: RunFacts) -> str:
    said = why(facts)
    if not said.sentence:
        return ""
    evidence = f"\n\n{code(said.evidence)}" if said.evidence else ""
    line = pieces.config_line(facts.run)
    return prose(said.sentence, 1500) + evidence + (f"\n\n{line}" if line else "")


def _log_fold(facts: RunFacts) -> str:
    about, lines = pieces.log(facts)
    if not about:
        return ""
    is_open = " open" if facts.run.verdict in _OPEN_LOG else ""
    rest = (
        f"The whole log is on the {link('run page', facts.run_url)}.\n\n" if "last" in about and facts.run_url else ""
    )
    return f"<details{is_open}><summary>{about}</summary>\n\n{rest}{lines}\n\n</details>"


def _unconfirmed(facts: RunFacts) -> str:
    names = [code(one.name) for one in facts.attempts if one.unconfirmed_at is not None and one.gone_at is None]
    if not names:
        return ""
    return (
        f"**Not confirmed gone:** {', '.join(names[:MAX_NAMES])}. The provider does not answer as it should; "
        "gpurun goes on trying, and the cost runs until it is seen to be gone."
    )


def next_command(facts: RunFacts) -> str:  # noqa: PLR0911 - one a verdict
    """A sentence with the command that makes sense now; the command stands in code, so the bot never calls itself."""
    run = facts.run
    again = pieces.command(run)
    match run.verdict:
        case None if run.state is RunState.WAITING_APPROVAL and run.cancel_at is None:
            return f"To give it up, write {pieces.command(run, 'cancel')}."
        case None if run.cancel_at is None:
            return f"To stop it, write {pieces.command(run, 'cancel')}."
        case None:
            return ""
        case Verdict.PASSED:
            return f"To run it again, write {again}."
        case Verdict.REFUSED if run.pins.starter:
            return f"Add the file, push, then write {again}."
        case Verdict.REFUSED if run.reason in ("config", "hardware", "platform", "policy"):
            return f"Correct the file, push, then write {again}."
        case _:
            return f"To try again, write {again}. {code('/gpurun help')} shows all commands."


def _footer(facts: RunFacts) -> str:
    run = facts.run
    narrowed = f" as {pieces.command(run)}" if pieces.arguments(run) else ""
    parts = [f"run {code(run.id)}", f"asked by {code(run.who)}{narrowed}"]
    if run.also_asked:
        names = [code(name, 60) for name in run.also_asked[:MAX_NAMES]]
        more = len(run.also_asked) - len(names)
        parts.append("also asked by " + ", ".join(names) + (f" and {more} more" if more else ""))
    if facts.run_url:
        parts.insert(0, link("Run page: full log, metrics, artifacts", facts.run_url))
    return " · ".join(parts)


def _joined(parts: list[str]) -> str:
    return "\n\n".join(part for part in parts if part)
