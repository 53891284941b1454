"""What happens next to a run. Pure; the table `run` of docs/concepts/engine.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

from gpurun.domain.approval import Approval
from gpurun.domain.money import usd_text, usd_up
from gpurun.domain.offer import Offer
from gpurun.domain.run import Attempt, Fault, Quote, Run, RunState, Verdict
from gpurun.run.timers import (
    APPROVAL_LIMIT,
    DEADLINE_SPARE,
    LOOKING_LIMIT,
    NO_OFFER_LIMIT,
    OFFER_POLL,
    PLANNING_LIMIT,
    RETRY_PAUSE,
    WATCH,
    WATCH_RUN,
    list_poll,
    slot_poll,
)
from gpurun.run.trust import is_approved
from gpurun.run.verdict import cannot_claim, end_is_ordered, verdict_of, worth_a_retry

FOR_A_SLOT = "slot"
FOR_AN_OFFER = "capacity"
"""What a queued run waits for, as its `reason`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known besides the rows."""

    offers: tuple[Offer, ...] | None = None
    """Of providers where create is allowed, cheapest first; None: not asked in this step."""
    free_slots: Mapping[str, int] = field(default_factory=dict)
    """By provider."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """How many there are, by provider."""
    no_offer_because: str = ""
    is_listing: bool = False
    """A provider cannot be used before its first list, which is on its way."""
    never: str = ""
    """Why no provider will ever have an offer, in a sentence; empty when one still may."""
    resources_line: int = 0
    """Where the file asks for what nobody has; 0: not known."""
    approval: Approval | None = None
    """The one in force for the pull request; only looked for when the run needs one."""
    spent_usd_micro: int = 0
    """What its attempts have cost so far, by our clock."""
    up_at: datetime | None = None
    """Since when this process looks after rows: before, nobody could end an attempt in time."""


@dataclass(frozen=True, slots=True)
class PinNext:
    """Planning: resolve one more pin, or build the plan when none is left."""


@dataclass(frozen=True, slots=True)
class AskOffers:
    """Ask the providers, then decide again."""


@dataclass(frozen=True, slots=True)
class Choose:
    """Insert an attempt on this offer; the run is active."""

    offer: Offer


@dataclass(frozen=True, slots=True)
class SaveRun:
    """Write these engine-owned columns."""

    row: Run


@dataclass(frozen=True, slots=True)
class RunIsOver:
    """Terminal absorbs."""


RunDecision = PinNext | AskOffers | Choose | SaveRun | RunIsOver


def decide_run(run: Run, attempts: tuple[Attempt, ...], facts: RunFacts, now: datetime) -> RunDecision:
    """`attempts` in order of their number."""
    match run.state:
        case RunState.PLANNING:
            return _planning(run, now)
        case RunState.WAITING_APPROVAL:
            return _waiting_approval(run, facts, now)
        case RunState.QUEUED:
            return _queued(run, attempts, facts, now)
        case RunState.ACTIVE:
            return _active(run, attempts[-1], facts, now)
        case RunState.ENDED:
            return RunIsOver()
        case _:
            assert_never(run.state)


def gives_up_at(run: Run) -> datetime | None:
    """When a run that has not started ends by itself, as things are; None: never, or it has started."""
    if run.is_held or (run.state is RunState.QUEUED and run.reason == FOR_A_SLOT):
        return None
    limits = {
        RunState.PLANNING: PLANNING_LIMIT,
        RunState.WAITING_APPROVAL: APPROVAL_LIMIT,
        RunState.QUEUED: NO_OFFER_LIMIT,
    }
    return run.state_since + limits[run.state] if run.state in limits else None


def fits(run: Run, quote: Quote, spent_usd_micro: int = 0) -> bool:
    """The ceiling that was typed with the command allows it."""
    most = run.narrow.max_usd_micro
    return most is None or spent_usd_micro + quote.worst_usd_micro <= most


def quote_of(run: Run, offer: Offer) -> Quote:
    """What one attempt of the planned run would cost there at the worst."""
    longest_s = run.plan.max_duration_s if run.plan else 0
    return Quote(
        label=offer.label,
        usd_per_hour_micro=offer.usd_per_hour_micro,
        longest_s=offer.boot_timeout_s + longest_s + int(DEADLINE_SPARE.total_seconds()),
        declared=offer.declared,
    )


def enter(run: Run, state: RunState, now: datetime) -> Run:
    """The run in its next state, due at once."""
    return replace(run, state=state, state_since=now, due_at=now, tries=0, last_error="", reason="", detail="")


def end(
    run: Run,
    verdict: Verdict,
    now: datetime,
    *,
    reason: str = "",
    detail: str = "",
    error_line: int = 0,
    faults: tuple[Fault, ...] = (),
) -> Run:
    """The run with its verdict."""
    return replace(
        enter(run, RunState.ENDED, now),
        due_at=None,
        ended_at=now,
        verdict=verdict,
        reason=reason,
        detail=detail,
        error_line=error_line,
        faults=faults,
    )


def _planning(run: Run, now: datetime) -> RunDecision:
    if run.cancel_at is not None:
        return _cancelled(run, now)
    if run.paused:
        return _held(run, now)
    if now >= run.state_since + PLANNING_LIMIT:
        detail = run.last_error or "The pins of the job could not be resolved in time."
        return SaveRun(end(run, Verdict.LOST, now, reason="resolve", detail=detail))
    return PinNext()


def _waiting_approval(run: Run, facts: RunFacts, now: datetime) -> RunDecision:
    if run.cancel_at is not None:
        return _cancelled(run, now)
    if now >= run.state_since + APPROVAL_LIMIT:
        return SaveRun(end(run, Verdict.REFUSED, now, reason="expired", detail="Nobody approved the run in 13 days."))
    if run.quote is not None and not fits(run, run.quote):
        return _beyond_the_ceiling(run, run.quote, facts, now)
    approval = facts.approval
    if approval is None or approval.sha != run.sha:
        return _wait(replace(run, tries=0, detail=""), run.state_since + APPROVAL_LIMIT)
    short = _too_dear(run.quote, facts)
    if short:
        return _wait(replace(run, tries=0, detail=short), run.state_since + APPROVAL_LIMIT)
    return SaveRun(replace(enter(run, RunState.QUEUED, now), approval=approval.id))


def _too_dear(quote: Quote | None, facts: RunFacts) -> str:
    """Why the ceiling of the approval does not cover another attempt; empty when it does, or nobody knows the price."""
    if quote is None or facts.approval is None or facts.approval.max_usd_micro is None:
        return ""
    worst = facts.spent_usd_micro + quote.worst_usd_micro
    if facts.approval.covers(worst):
        return ""
    most = usd_text(facts.approval.max_usd_micro)
    return f"It may cost ${usd_text(usd_up(worst))}, and the approval by {facts.approval.by} is for at most ${most}."


def _queued(run: Run, attempts: tuple[Attempt, ...], facts: RunFacts, now: datetime) -> RunDecision:
    if run.cancel_at is not None:
        return _cancelled(run, now)
    if run.paused:
        return _held(run, now)
    retry_at = attempts[-1].result_at + RETRY_PAUSE if attempts and attempts[-1].result_at else now
    if now < retry_at:
        return _wait(run, retry_at)
    if not is_approved(run, facts.approval):  # it ended, and nobody called the run off
        return SaveRun(replace(enter(run, RunState.WAITING_APPROVAL, now), approval=""))
    if facts.offers is None:
        # the limit is looked at after the offers: waiting for a slot is no lack of them
        return AskOffers()
    return _of_offers(run, attempts, facts, facts.offers, now)


def _of_offers(
    run: Run, attempts: tuple[Attempt, ...], facts: RunFacts, offers: tuple[Offer, ...], now: datetime
) -> RunDecision:
    within = [offer for offer in offers if fits(run, quote_of(run, offer), facts.spent_usd_micro)]
    if offers and not within:
        quotes = (quote_of(run, offer) for offer in offers)
        least = min(quotes, key=lambda quote: quote.worst_usd_micro)
        return _beyond_the_ceiling(run, least, facts, now)
    dear = [_too_dear(quote_of(run, offer), facts) if run.untrusted else "" for offer in within]
    if dear and all(dear):
        # with the price of now: that of before would let it go on again at once
        least = min((quote_of(run, offer) for offer in within), key=lambda quote: quote.worst_usd_micro)
        waiting = replace(enter(run, RunState.WAITING_APPROVAL, now), approval="", quote=least)
        return SaveRun(replace(waiting, detail=_too_dear(least, facts)))
    covered = [offer for offer, why in zip(within, dear, strict=True) if not why]
    free = [offer for offer in covered if facts.free_slots.get(offer.provider, 0) > 0]
    if free:
        return Choose(_elsewhere_first(free, attempts)[0])
    if covered:
        detail = _no_place(covered[0], facts)
        waiting = replace(run, state_since=now, tries=0, reason=FOR_A_SLOT, detail=detail)
        return _wait(waiting, now + slot_poll(now - run.created_at))
    return _no_offer(run, facts, now)


def _no_offer(run: Run, facts: RunFacts, now: datetime) -> RunDecision:
    if facts.never:
        refused = end(run, Verdict.REFUSED, now, reason="hardware", detail=facts.never, error_line=facts.resources_line)
        return SaveRun(refused)
    because = facts.no_offer_because or "No provider offers what the job needs."
    if now >= run.state_since + NO_OFFER_LIMIT:
        return SaveRun(end(run, Verdict.LOST, now, reason="no_capacity", detail=because))
    again = list_poll(now - run.state_since) if facts.is_listing else OFFER_POLL
    return _wait(replace(run, tries=0, reason=FOR_AN_OFFER, detail=because), now + again)


def _no_place(offer: Offer, facts: RunFacts) -> str:
    """Which limit holds the run. The same for all that wait for that place."""
    slots = facts.slots.get(offer.provider, 0)
    taken = f": all {slots} are taken" if slots > 1 else ": the only one is taken" if slots else ""
    return f"Waiting for a free place on {offer.label}{taken}."


def _held(run: Run, now: datetime) -> SaveRun:
    """Until the end of the pause no limit of time comes nearer."""
    return _wait(replace(run, state_since=now, tries=0), now + WATCH)


def _beyond_the_ceiling(run: Run, least: Quote, facts: RunFacts, now: datetime) -> SaveRun:
    """Everything is dearer than what was typed."""
    most, worst = run.narrow.max_usd_micro or 0, facts.spent_usd_micro + least.worst_usd_micro
    spent = ", with what earlier attempts cost," if facts.spent_usd_micro else ""
    detail = (
        f"It may cost ${usd_text(usd_up(worst))}{spent} on {least.label}, the cheapest there is, and "
        f"`max-cost={usd_text(most)}` allows less. Write the command again with "
        f"`max-cost={usd_text(usd_up(worst))}`, or without it."
    )
    return SaveRun(end(run, Verdict.REFUSED, now, reason="budget", detail=detail))


def _elsewhere_first(offers: list[Offer], attempts: tuple[Attempt, ...]) -> list[Offer]:
    """A host that lost an attempt comes last, not never: there may be no other."""
    burnt = {(attempt.offer.provider, attempt.offer.id) for attempt in attempts}
    return sorted(offers, key=lambda offer: (offer.provider, offer.id) in burnt)


def _active(run: Run, attempt: Attempt, facts: RunFacts, now: datetime) -> RunDecision:
    result = attempt.result
    overdue = now >= max(attempt.hard_deadline, facts.up_at or attempt.hard_deadline) + LOOKING_LIMIT
    if result is None:
        if not overdue:
            return _wait(run, now + WATCH_RUN)
        return _overdue(run, now)
    if worth_a_retry(result, attempt, run):
        if cannot_claim(attempt):
            return SaveRun(enter(run, RunState.QUEUED, now))
        if attempt.unconfirmed_at is None and not overdue:
            return _wait(run, now + WATCH_RUN)
    elif not end_is_ordered(attempt) and not overdue:
        return _wait(run, now + WATCH_RUN)
    verdict = verdict_of(result, attempt, run)
    return SaveRun(end(run, verdict, now, reason=result.reason, detail=result.detail))


def _overdue(run: Run, now: datetime) -> SaveRun:
    if run.cancel_at is not None:  # who asked for an end gets one
        return _cancelled(run, now)
    detail = "The attempt was past its deadline and nobody ended it."
    return SaveRun(end(run, Verdict.LOST, now, reason="deadline", detail=detail))


def _cancelled(run: Run, now: datetime) -> SaveRun:
    by = f"Cancelled by {run.cancel_by}." if run.cancel_by else ""
    return SaveRun(end(run, Verdict.CANCELLED, now, reason="asked", detail=by))


def _wait(run: Run, until: datetime) -> SaveRun:
    return SaveRun(replace(run, due_at=until))
