"""The request for an approval: what would run, what it costs, what it changes, and the line that allows it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gpurun.domain.run import Run, Untrusted
from gpurun.domain.text import laid_open
from gpurun.report import pieces
from gpurun.report.facts import Request, RunFacts
from gpurun.report.text import code, cut, duration, fenced, link, plain, prose, usd

MAX_LINES = 150
"""Of one diff. What is not shown is counted, and where to see it is said."""
MAX_LINE_BYTES = 300
MAX_DIFF_BYTES = 16_000
"""Of all diffs together."""

_WHOSE = {
    Untrusted.FORK: "This is code of a fork",
    Untrusted.AUTHOR: "The author of this pull request may not push to this repository",
}


def asking(facts: RunFacts) -> str:
    """Markdown; empty when nobody is asked."""
    run, request = facts.run, facts.request
    if request is None or run.untrusted is None or run.cancel_at is not None:
        return ""
    commit = link(code(run.sha), f"{_pull_url(facts)}/commits/{run.sha}" if facts.forge_url else "")
    whose = f"{_WHOSE[run.untrusted]}, so it runs only when somebody allows this very commit, {commit}."
    ends = "Any push ends the approval, and what runs under it."
    without = "The run gets no secrets, no private models, and no cache that others use."
    return "\n\n".join(
        (
            f"{whose} Look at what it does, then write",
            code(request.command),
            f"That is for {prose(request.who)}. {_price(run)} {ends} {without}",
            _changed(facts, request),
        )
    )


def allowed_by(facts: RunFacts) -> str:
    """Who allowed what runs; empty for code that needs nobody."""
    approval = facts.approval
    if approval is None:
        return ""
    most = "" if approval.max_usd_micro is None else f" for at most {usd(approval.max_usd_micro)}"
    return f"{code(approval.sha[:12])} was approved by {code(approval.by)}{most}."


def _price(run: Run) -> str:
    quote = run.quote
    if quote is None:
        return "What it may cost is not known: no provider offers what it needs at this moment."
    declared = " (declared by whoever runs this server)" if quote.declared else ""
    return (
        f"It may cost {usd(quote.worst_usd_micro)} on {prose(quote.label, 200)}{declared}: "
        f"{usd(quote.usd_per_hour_micro)} an hour, for at most {duration(quote.longest_s)}."
    )


def _changed(facts: RunFacts, request: Request) -> str:
    """The job's own changes first: they decide what runs. The file may hold much else."""
    run = facts.run
    path, base = code(pieces.config_path(run)), code(run.base_ref, 200)
    if not request.file_diff and not request.changed:
        return f"{path} is the same as on {base}."
    if request.is_new:
        about = f"**{base} has no job {code(run.job)}**: all of it is new."
    elif request.changed:
        keys = ", ".join(code(one.key) for one in request.changed)
        about = f"**It changes the job {code(run.job)} itself**, against {base}: {keys}."
    else:
        about = f"It changes {path}, and nothing of what {code(run.job)} does there."
    diffs = [(f"{one.key} of {run.job}", one.diff) for one in request.changed]
    if request.file_diff:
        diffs.append((f"{pieces.config_path(run)} against {run.base_ref}", request.file_diff))
    files_url = f"{_pull_url(facts)}/files" if facts.forge_url else ""
    return "\n\n".join([about, *folds(diffs, files_url)])


def folds(diffs: Sequence[tuple[str, Sequence[str]]], files_url: str) -> list[str]:
    """Diffs with their titles, each folded, all of them within what a comment has room for."""
    made, room = [], MAX_DIFF_BYTES
    for title, diff in diffs:
        shown = _within(diff, room)
        room -= sum(len(line.encode()) + 1 for line in shown)
        made.append(_fold(title, diff, shown, files_url))
    return made


def _fold(title: str, diff: Sequence[str], shown: Sequence[str], files_url: str) -> str:
    added = sum(line.startswith("+") for line in diff)
    removed = sum(line.startswith("-") for line in diff)
    more = ""
    if left := len(diff) - len(shown):
        files = link("the pull request's files", files_url)
        more = f"**{left} more lines are not shown here.** They are in {files}.\n\n"
    summary = f"{escape(plain(title))}: +{added} -{removed}"
    block = fenced("\n".join(shown), "diff") if shown else ""
    return f"<details><summary>{summary}</summary>\n\n{more}{block}\n\n</details>"


def _within(diff: Sequence[str], room: int) -> list[str]:
    """The first lines, each with everything in it seen."""
    shown: list[str] = []
    for line in diff[:MAX_LINES]:
        told = cut(laid_open(line), MAX_LINE_BYTES)
        room -= len(told.encode()) + 1
        if room < 0:
            break
        shown.append(told)
    return shown


def _pull_url(facts: RunFacts) -> str:
    return f"{facts.forge_url}/{facts.run.repo.name}/pull/{facts.run.pr}"
