"""`gpurun/gate`, and the check of a required job that nobody has started. Within GitHub's limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpurun.domain.changed import Changed
from gpurun.domain.forge import Annotation, Check, CheckAction, CheckStatus, Conclusion
from gpurun.report.buttons import APPROVE, RUN
from gpurun.report.limits import CHECK_BYTES, within
from gpurun.report.request import folds
from gpurun.report.standing import (
    GateFacts,
    NeedFacts,
    Stand,
    as_other,
    gate_conclusion,
    run_in_question,
    stand_of,
)
from gpurun.report.text import code, link, plain, prose, table

GATE_NAME = "gpurun/gate"
NAMED = 3
"""Jobs that a title names: GitHub shows about 100 characters of it beside the merge button."""
MAX_ROWS = 100
MAX_REASON_BYTES = 300

_TITLE_ORDER = (
    Stand.UNREADABLE,
    Stand.CHANGED,
    Stand.NOT_APPROVED,
    Stand.NOT_STARTED,
    Stand.NOT_ENDED_WELL,
)


def gate_id(gate: str) -> str:
    """`external_id` of the check of that gate."""
    return f"gate:{gate}"


def need_id(gate: str, need: NeedFacts) -> str:
    """`external_id` of the check of a job that nobody has started."""
    folder = f"{need.needed.folder}:" if need.needed.folder else ""
    return f"need:{gate}:{folder}{need.needed.job}"


def need_name(need: NeedFacts) -> str:
    """As that of its runs, which take its place."""
    return f"gpurun / {need.name}"


def render_gate(facts: GateFacts) -> Check:
    """The whole of it."""
    summary = _summary(facts)
    if len(summary.encode()) > CHECK_BYTES:  # a part of Markdown may mean something else than the whole
        summary = _short(facts)
    return within(_check(facts, summary))


def minimal_gate(facts: GateFacts) -> Check:
    """For a forge that refused the full one."""
    return within(_check(facts, _short(facts)))


def render_need(facts: GateFacts, need: NeedFacts) -> Check:
    """Red until somebody starts the job, whose run has a check of the same name."""
    todo = f"Somebody who may run jobs writes {code(need.command)}, or presses Run."
    return within(
        Check(
            name=need_name(need),
            external_id=need_id(facts.gate.id, need),
            status=CheckStatus.COMPLETED,
            conclusion="action_required",
            title=plain(f"not started. Type {need.command}"),
            summary=f"{code(need.name)} is required, and nobody has started it at {_commit(facts)}.\n\n{todo}",
            started_at=facts.gate.created_at,
            completed_at=facts.now,
            actions=(RUN,),
        )
    )


def _check(facts: GateFacts, summary: str) -> Check:
    ended = gate_conclusion(facts)
    return Check(
        name=GATE_NAME,
        external_id=gate_id(facts.gate.id),
        status=CheckStatus.IN_PROGRESS if ended is None else CheckStatus.COMPLETED,
        conclusion=ended,
        title=gate_title(facts),
        summary=summary,
        details_url=_page(facts, ended),
        started_at=facts.gate.created_at,
        completed_at=None if ended is None else facts.now,
        annotations=_annotations(facts),
        actions=_actions(facts),
    )


# title


def gate_title(facts: GateFacts) -> str:
    """What it waits for, and what to type."""
    match gate_conclusion(facts):
        case "success":
            return plain(_success(facts))
        case ended if ended != gate_conclusion(alone(facts)):
            return plain(_of_others(facts, ended))
        case "failure":
            return plain(f"failed: {_names(_with(facts, Stand.FAILED))}")
        case None:
            running = _with(facts, Stand.RUNNING)
            return plain(f"running: {_names(running)}" if running else "looking at what is required")
        case _:
            return plain(_waits(facts))


def alone(facts: GateFacts) -> GateFacts:
    """As if no other pull request had this head."""
    return replace(facts, others=(), crowded=False)


def _of_others(facts: GateFacts, ended: Conclusion | None) -> str:
    """Another pull request says what the check says."""
    for other in map(as_other, facts.others):
        if gate_conclusion(other) == ended:
            return f"#{other.gate.pr} has this commit, too: {gate_title(other)}"
    return f"more than {len(facts.others)} other pull requests have this commit. Close those that nobody needs"


def _success(facts: GateFacts) -> str:
    passed = _with(facts, Stand.PASSED)
    overridden = _with(facts, Stand.OVERRIDDEN)
    parts = [
        f"passed: {_names(passed)}" if passed else "",
        *(f"{need.name}: {_overridden(need)}" for need in overridden[:NAMED]),
        f"and {len(overridden) - NAMED} more overridden" if len(overridden) > NAMED else "",
        *(f"{need.name}: removed, {_approved(facts)}" for need in _with(facts, Stand.REMOVED)[:NAMED]),
        *(f"{need.name}: n/a by paths" for need in _with(facts, Stand.NOT_MEANT)[:NAMED]),
    ]
    return "; ".join(part for part in parts if part) or "no job is required"


def _waits(facts: GateFacts) -> str:
    look = facts.gate.look
    if look is not None and look.fault:
        return f"nobody can know what is required: {look.fault}"
    if facts.pause is not None:
        return f"paused by @{facts.pause.by}: {facts.pause.reason}"
    for stand in _TITLE_ORDER:
        needs = _with(facts, stand)
        if needs:
            return _waits_for(stand, needs, facts)
    return f"not everything that is required was seen. Type {facts.approve_command}"


def _waits_for(stand: Stand, needs: Sequence[NeedFacts], facts: GateFacts) -> str:
    names = _names(needs)
    match stand:
        case Stand.UNREADABLE:
            return f"{names}: {needs[0].needed.fault}"
        case Stand.CHANGED | Stand.NOT_APPROVED:
            return f"{stand}: {names}. Type {facts.approve_command}"
        case _:
            return f"{stand}: {names}. Type {needs[0].command}"


def _names(needs: Sequence[NeedFacts]) -> str:
    named = ", ".join(need.name for need in needs[:NAMED])
    return f"{named} and {len(needs) - NAMED} more" if len(needs) > NAMED else named


def _with(facts: GateFacts, stand: Stand) -> list[NeedFacts]:
    return [need for need in facts.needs if stand_of(need, facts) is stand]


def _overridden(need: NeedFacts) -> str:
    assert need.override is not None
    return f"overridden by @{need.override.by}: {need.override.reason}"


def _approved(facts: GateFacts) -> str:
    return "" if facts.approval is None else f"approved by @{facts.approval.by}"


# summary


def _short(facts: GateFacts) -> str:
    return f"**{prose(gate_title(facts))}**\n\n{_todo(facts)}"


def _summary(facts: GateFacts) -> str:
    look = facts.gate.look
    if look is None:
        return f"gpurun looks at what {_commit(facts)} must have passed."
    parts = [
        f"**{prose(gate_title(facts))}**",
        prose(look.fault, 1500),
        prose(look.unsure, 500),
        _others(facts),
        _paused(facts),
        _jobs(facts),
        _todo(facts),
        *_changes(facts),
        f"What is required, and for which paths, is what {code(look.base_ref, 200)} says." if look.base_ref else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _jobs(facts: GateFacts) -> str:
    rows = [_row(need, facts) for need in facts.needs[:MAX_ROWS]]
    if not rows:
        return "No job is required."
    more = len(facts.needs) - MAX_ROWS
    tail = f"\n\nAnd {more} more." if more > 0 else ""
    return table(("Job", "Stands", "What to do"), *rows) + tail


def _row(need: NeedFacts, facts: GateFacts) -> tuple[str, str, str]:
    stand = stand_of(need, facts)
    word = stand.value
    told, todo = "", ""
    match stand:
        case Stand.OVERRIDDEN:
            told = prose(_overridden(need), MAX_REASON_BYTES)
        case Stand.REMOVED:
            told = prose(f"removed, {_approved(facts)}")
        case Stand.UNREADABLE:
            todo = "Correct the file."
        case Stand.CHANGED:
            todo = code(facts.approve_command)
        case Stand.NOT_APPROVED:
            told, todo = _linked(need, word), code(facts.approve_command)
        case Stand.NOT_STARTED | Stand.NOT_ENDED_WELL:
            told, todo = _linked(need, word), code(need.command)
        case Stand.FAILED:
            told, todo = _linked(need, word), f"A new commit, or {code(need.command)} again"
        case Stand.PASSED | Stand.RUNNING:
            told = _linked(need, word)
        case Stand.NOT_MEANT:
            pass
    by_head = " (only this pull request requires it)" if need.needed.by_head else ""
    return code(need.name) + by_head, told or word, todo


def _linked(need: NeedFacts, word: str) -> str:
    run = run_in_question(need)
    verdict = f": {run.verdict.value}" if run is not None and run.verdict is not None and run.verdict != word else ""
    times = f" ({len(need.runs)} runs)" if len(need.runs) > 1 else ""
    return link(f"{word}{verdict}", need.run_url) + times


def _todo(facts: GateFacts) -> str:
    """The lines to type, each by itself."""
    lines = []
    if _with(facts, Stand.CHANGED) or _with(facts, Stand.NOT_APPROVED) or _is_unsure(facts):
        lines.append(f"Somebody who may approve looks at what changed, then writes {code(facts.approve_command)}.")
        lines.append("Any push ends that.")
    start = [*_with(facts, Stand.NOT_STARTED), *_with(facts, Stand.NOT_ENDED_WELL)]
    if start:
        more = f" and {len(start) - NAMED} more" if len(start) > NAMED else ""
        lines.append(f"To start: {', '.join(code(need.command) for need in start[:NAMED])}{more}.")
    return " ".join(lines)


def _is_unsure(facts: GateFacts) -> bool:
    return facts.gate.look is not None and bool(facts.gate.look.unsure) and facts.approval is None


def _others(facts: GateFacts) -> str:
    """GitHub shows one check of a name and a commit."""
    if not facts.others:
        return ""
    lines = [f"- #{other.gate.pr}: {prose(gate_title(as_other(other)))}" for other in facts.others]
    return "Other pull requests with this commit, whose required jobs count here, too:\n\n" + "\n".join(lines)


def _paused(facts: GateFacts) -> str:
    if facts.pause is None:
        return ""
    said = prose(f"Paused by @{facts.pause.by}: {facts.pause.reason}", MAX_REASON_BYTES)
    return f"{said}. {code('/gpurun resume')} ends it."


def _changes(facts: GateFacts) -> list[str]:
    diffs: list[tuple[str, Sequence[str]]] = []
    for need in facts.needs:
        diffs += [(_changed_title(one, need), one.diff) for one in need.needed.changed]
    if not diffs:
        return []
    gate = facts.gate
    files_url = f"{facts.forge_url}/{gate.repo.name}/pull/{gate.pr}/files" if facts.forge_url else ""
    folded = folds(diffs[:MAX_ROWS], files_url)
    more = f"And {len(diffs) - MAX_ROWS} more changes." if len(diffs) > MAX_ROWS else ""
    return ["What this pull request changes of them:", *folded, more]


def _changed_title(changed: Changed, need: NeedFacts) -> str:
    return f"{need.name} is removed" if need.needed.gone else f"{changed.key} of {need.name}"


def _commit(facts: GateFacts) -> str:
    gate = facts.gate
    url = f"{facts.forge_url}/{gate.repo.name}/pull/{gate.pr}/commits/{gate.sha}" if facts.forge_url else ""
    return link(code(gate.sha[:12]), url)


# the rest


def _page(facts: GateFacts, ended: Conclusion | None) -> str:
    """Of the run in question; empty when it is about none."""
    order = {
        "failure": (Stand.FAILED,),
        "action_required": (Stand.NOT_APPROVED, Stand.NOT_ENDED_WELL),
        "success": (Stand.PASSED,),
        None: (Stand.RUNNING,),
    }
    for stand in order.get(ended, ()):
        for need in _with(facts, stand):
            if need.run_url:
                return need.run_url
    return ""


def _annotations(facts: GateFacts) -> tuple[Annotation, ...]:
    look = facts.gate.look
    return tuple(
        Annotation(path=fault.file, line=fault.line, title=GATE_NAME, message=plain(fault.text, 10_000))
        for fault in (look.faults if look else ())
    )


def _actions(facts: GateFacts) -> tuple[CheckAction, ...]:
    return (APPROVE,) if _with(facts, Stand.CHANGED) or _is_unsure(facts) else ()
