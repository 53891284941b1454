from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gpurun.domain.approval import Approval
from gpurun.domain.ids import CommitSha
from gpurun.domain.offer import Offer
from gpurun.domain.run import AttemptState, Phase, Quote, Result, ResultKind, RunState, Untrusted, Verdict
from gpurun.run.decide_run import AskOffers, Choose, PinNext, RunFacts, RunIsOver, SaveRun, decide_run
from tests.fakes.clock import START
from tests.fakes.rows import OFFER, PLAN, REPO, SHA, a_run, an_attempt

CHEAP = replace(OFFER, id="cheap")
OTHER = replace(OFFER, provider="other", id="cheap")


def later(**delta):
    return START + timedelta(**delta)


def queued(**changes):
    return a_run(state=RunState.QUEUED, plan=PLAN, **changes)


def active(**changes):
    return a_run(**{"state": RunState.ACTIVE, "plan": PLAN, "attempts": 1, **changes})


def lost(reason="boot", **changes):
    given = {
        "state": AttemptState.GONE,
        "result": Result(kind=ResultKind.LOST, reason=reason, detail="why"),
        "result_at": START,
        "destroy_asked_at": START,
    }
    return an_attempt(**{**given, **changes})


def saved(decision):
    assert isinstance(decision, SaveRun)
    return decision.row


def ended(decision):
    row = saved(decision)
    assert row.state is RunState.ENDED
    assert row.due_at is None
    assert row.ended_at is not None
    return row.verdict, row.reason


def test_planning_pins_until_its_time_is_over():
    assert decide_run(a_run(), (), RunFacts(), later(minutes=9)) == PinNext()
    late = a_run(last_error="The registry did not answer.")
    row = saved(decide_run(late, (), RunFacts(), later(minutes=10)))
    assert (row.verdict, row.reason, row.detail) == (Verdict.LOST, "resolve", "The registry did not answer.")


@pytest.mark.parametrize("state", [RunState.PLANNING, RunState.WAITING_APPROVAL, RunState.QUEUED])
def test_a_cancel_ends_a_run_without_an_attempt(state):
    run = a_run(state=state, plan=PLAN, cancel_at=START, cancel_by="@eve")
    row = saved(decide_run(run, (), RunFacts(), START))
    assert (row.verdict, row.detail) == (Verdict.CANCELLED, "Cancelled by @eve.")


def test_an_approval_is_waited_for_13_days():
    waiting = a_run(state=RunState.WAITING_APPROVAL, untrusted=Untrusted.FORK)
    assert saved(decide_run(waiting, (), RunFacts(), START)).due_at == later(days=13)
    assert ended(decide_run(waiting, (), RunFacts(), later(days=13))) == (Verdict.REFUSED, "expired")


GIVEN = Approval(
    id="approval-1", repo=REPO, pr=1, sha=SHA, max_usd_micro=1_000_000, by="carol", at=START, asked_at=START
)
QUOTE = Quote(label="Big GPU (fake)", usd_per_hour_micro=1_000_000, longest_s=3000, declared=False)
"""What an attempt on OFFER may cost: ten minutes to boot, half an hour, and ten minutes to spare."""


def untrusted(state, **changes):
    return a_run(state=state, plan=PLAN, untrusted=Untrusted.FORK, quote=QUOTE, **changes)


def test_what_waits_goes_on_with_an_approval_of_its_commit_and_of_no_other():
    waiting = untrusted(RunState.WAITING_APPROVAL)
    row = saved(decide_run(waiting, (), RunFacts(approval=GIVEN), START))
    assert (row.state, row.approval) == (RunState.QUEUED, "approval-1")
    other = replace(GIVEN, sha=CommitSha("d" * 40))
    assert saved(decide_run(waiting, (), RunFacts(approval=other), START)).state is RunState.WAITING_APPROVAL


def test_a_ceiling_below_the_worst_price_is_not_enough_and_is_told():
    waiting = untrusted(RunState.WAITING_APPROVAL)
    short = replace(GIVEN, max_usd_micro=QUOTE.worst_usd_micro - 1)
    row = saved(decide_run(waiting, (), RunFacts(approval=short), START))
    assert row.state is RunState.WAITING_APPROVAL
    assert row.detail == "It may cost $0.84, and the approval by carol is for at most $0.833333."
    for most in (QUOTE.worst_usd_micro, None):
        enough = replace(GIVEN, max_usd_micro=most)
        assert saved(decide_run(waiting, (), RunFacts(approval=enough), START)).state is RunState.QUEUED


def test_without_a_known_price_the_offers_themselves_are_held_to_the_ceiling():
    waiting = untrusted(RunState.WAITING_APPROVAL)
    row = saved(decide_run(replace(waiting, quote=None), (), RunFacts(approval=GIVEN), START))
    assert row.state is RunState.QUEUED
    short = RunFacts(offers=(OFFER,), free_slots={"fake": 1}, approval=replace(GIVEN, max_usd_micro=1))
    row = saved(decide_run(replace(row, plan=PLAN), (), short, START))
    assert (row.state, row.approval) == (RunState.WAITING_APPROVAL, "")
    assert "It may cost $0.84" in row.detail


def test_a_price_that_rose_is_waited_for_at_rest():
    """It does not go back and forth between the price of the plan and the one of now."""
    dearer = replace(OFFER, usd_per_hour_micro=2_000_000)
    facts = RunFacts(
        offers=(replace(dearer, usd_per_hour_micro=3_000_000), dearer), free_slots={"fake": 1}, approval=GIVEN
    )
    row = saved(decide_run(untrusted(RunState.QUEUED, approval="approval-1"), (), facts, START))
    assert (row.state, row.quote.usd_per_hour_micro) == (RunState.WAITING_APPROVAL, 2_000_000)
    again = saved(decide_run(row, (), RunFacts(approval=GIVEN), START))
    assert (again.state, again.due_at, again.detail) == (RunState.WAITING_APPROVAL, later(days=13), row.detail)
    higher = replace(GIVEN, max_usd_micro=2_000_000)
    assert saved(decide_run(again, (), RunFacts(approval=higher), START)).state is RunState.QUEUED


def test_an_offer_above_the_ceiling_is_not_taken():
    dear = replace(OTHER, usd_per_hour_micro=2_000_000)
    facts = RunFacts(offers=(dear, CHEAP), free_slots={"fake": 1, "other": 1}, approval=GIVEN)
    assert decide_run(untrusted(RunState.QUEUED), (), facts, START) == Choose(CHEAP)


def test_what_the_first_attempt_cost_is_a_part_of_the_ceiling():
    run = untrusted(RunState.QUEUED, attempts=1)
    facts = RunFacts(offers=(OFFER,), free_slots={"fake": 1}, approval=GIVEN)
    assert decide_run(run, (lost(),), facts, later(seconds=10)) == Choose(OFFER)
    spent = replace(facts, spent_usd_micro=200_000)
    assert saved(decide_run(run, (lost(),), spent, later(seconds=10))).state is RunState.WAITING_APPROVAL


@pytest.mark.parametrize("offers", [None, (OFFER,)])
def test_a_queued_run_whose_approval_is_gone_waits_again(offers):
    facts = RunFacts(offers=offers, free_slots={"fake": 1})
    row = saved(decide_run(untrusted(RunState.QUEUED, approval="approval-1"), (), facts, START))
    assert (row.state, row.approval) == (RunState.WAITING_APPROVAL, "")


def test_trusted_code_needs_nobodys_word():
    facts = RunFacts(offers=(OFFER,), free_slots={"fake": 1})
    assert decide_run(queued(), (), facts, START) == Choose(OFFER)


def test_a_queued_run_asks_before_it_decides():
    assert decide_run(queued(), (), RunFacts(), later(hours=1)) == AskOffers()


def test_the_first_offer_with_a_free_place_is_chosen():
    facts = RunFacts(offers=(CHEAP, OTHER), free_slots={"fake": 0, "other": 1})
    assert decide_run(queued(), (), facts, START) == Choose(OTHER)


def test_a_host_that_lost_an_attempt_comes_last_but_comes():
    facts = RunFacts(offers=(CHEAP, OTHER), free_slots={"fake": 1, "other": 1})
    now = later(seconds=10)
    assert decide_run(queued(attempts=1), (lost(offer=CHEAP),), facts, now) == Choose(OTHER)
    only = RunFacts(offers=(CHEAP,), free_slots={"fake": 1})
    assert decide_run(queued(attempts=1), (lost(offer=CHEAP),), only, now) == Choose(CHEAP)


def test_what_nobody_will_ever_offer_is_refused_at_its_line():
    row = saved(decide_run(queued(), (), RunFacts(offers=(), never="No GPU here.", resources_line=7), START))
    assert (row.verdict, row.reason) == (Verdict.REFUSED, "hardware")
    assert (row.detail, row.error_line) == ("No GPU here.", 7)


def test_a_retry_pauses_ten_seconds():
    run = queued(attempts=1)
    assert saved(decide_run(run, (lost(),), RunFacts(), later(seconds=4))).due_at == later(seconds=10)
    assert decide_run(run, (lost(),), RunFacts(), later(seconds=10)) == AskOffers()


def test_fifteen_minutes_without_an_offer_end_the_run():
    none = RunFacts(offers=(), no_offer_because="All busy.")
    row = saved(decide_run(queued(), (), none, later(minutes=14)))
    assert (row.state, row.detail) == (RunState.QUEUED, "All busy.")
    assert ended(decide_run(queued(), (), none, later(minutes=15))) == (Verdict.LOST, "no_capacity")


def test_a_first_list_is_waited_for_in_moments():
    unlisted = RunFacts(offers=(), is_listing=True)
    waits = [saved(decide_run(queued(), (), unlisted, later(seconds=s))).due_at - later(seconds=s) for s in (0, 2, 60)]
    assert waits == [timedelta(seconds=0.05), timedelta(seconds=0.5), timedelta(seconds=5)]


def test_waiting_for_a_place_is_not_counted():
    run, full = queued(), RunFacts(offers=(OFFER,), free_slots={"fake": 0})
    for minutes in range(0, 60, 5):
        run = saved(decide_run(run, (), full, later(minutes=minutes)))
        assert run.state is RunState.QUEUED
        assert "Big GPU (fake)" in run.detail
    none = RunFacts(offers=())
    assert saved(decide_run(run, (), none, later(minutes=60))).state is RunState.QUEUED
    assert ended(decide_run(run, (), none, later(minutes=70))) == (Verdict.LOST, "no_capacity")


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        (ResultKind.PASSED, Verdict.PASSED),
        (ResultKind.FAILED, Verdict.FAILED),
        (ResultKind.TIMEOUT, Verdict.TIMEOUT),
        (ResultKind.PREEMPTED, Verdict.LOST),
        (ResultKind.LOST, Verdict.LOST),
        (ResultKind.CANCELLED, Verdict.LOST),  # and nobody had asked for it
    ],
)
def test_the_verdict_follows_the_result_once_the_end_is_ordered(kind, verdict):
    result = Result(kind=kind, reason="exit", detail="3")
    running = an_attempt(state=AttemptState.LIVE, result=result, result_at=START, phase=Phase.RUNNING)
    assert saved(decide_run(active(), (running,), RunFacts(), START)).state is RunState.ACTIVE
    ending = replace(running, state=AttemptState.DESTROYING, destroy_asked_at=START)
    row = saved(decide_run(active(), (ending,), RunFacts(), START))
    assert (row.verdict, row.reason, row.detail) == (verdict, "exit", "3")


def test_an_agent_that_stops_for_the_deadline_is_a_timeout_not_a_cancel():
    stopped = an_attempt(
        state=AttemptState.DESTROYING,
        destroy_asked_at=START,
        stop_asked_at=START,
        phase=Phase.RUNNING,
        result=Result(kind=ResultKind.CANCELLED, reason="asked"),
    )
    assert ended(decide_run(active(), (stopped,), RunFacts(), START))[0] is Verdict.TIMEOUT
    assert ended(decide_run(active(cancel_at=START), (stopped,), RunFacts(), START))[0] is Verdict.CANCELLED


@pytest.mark.parametrize("state", [AttemptState.GONE, AttemptState.VOID, AttemptState.UNSURE])
@pytest.mark.parametrize("phase", [None, Phase.CLAIMED, Phase.SOURCE, Phase.WEIGHTS])
def test_lost_before_user_code_is_tried_again_when_the_attempt_cannot_claim(state, phase):
    row = saved(decide_run(active(), (lost(state=state, phase=phase),), RunFacts(), START))
    assert (row.state, row.verdict) == (RunState.QUEUED, None)


@pytest.mark.parametrize("state", [AttemptState.LOOKING, AttemptState.DESTROYING])
def test_a_retry_waits_until_the_attempt_cannot_claim(state):
    assert saved(decide_run(active(), (lost(state=state),), RunFacts(), START)).state is RunState.ACTIVE


@pytest.mark.parametrize(
    ("run", "attempt", "verdict"),
    [
        (active(attempts=2), lost(number=2), Verdict.LOST),
        (active(), lost(phase=Phase.SETUP), Verdict.LOST),
        (active(), lost(phase=Phase.RUNNING), Verdict.LOST),
        (active(), lost(phase=Phase.SOURCE, phase_times={"setup": START, "source": START}), Verdict.LOST),
        (active(), lost(reason="invalid", state=AttemptState.VOID), Verdict.LOST),
        (active(), lost(reason="auth", state=AttemptState.VOID), Verdict.LOST),
        (active(cancel_at=START), lost(), Verdict.CANCELLED),
        (active(cancel_at=START), lost(phase=Phase.RUNNING), Verdict.LOST),
        (active(), lost(state=AttemptState.DESTROYING, unconfirmed_at=START), Verdict.LOST),
    ],
)
def test_no_retry(run, attempt, verdict):
    assert ended(decide_run(run, (attempt,), RunFacts(), START))[0] is verdict


def test_an_active_run_ends_even_when_nobody_works_on_its_attempt():
    forgotten = an_attempt(state=AttemptState.LIVE)
    deadline = forgotten.hard_deadline
    assert saved(decide_run(active(), (forgotten,), RunFacts(), deadline)).state is RunState.ACTIVE
    after = deadline + timedelta(minutes=10)
    assert ended(decide_run(active(), (forgotten,), RunFacts(), after)) == (Verdict.LOST, "deadline")
    cancelled = active(cancel_at=deadline, cancel_by="@eve")
    assert ended(decide_run(cancelled, (forgotten,), RunFacts(), after)) == (Verdict.CANCELLED, "asked")
    just_up = RunFacts(up_at=after - timedelta(minutes=1))  # nobody could end it before
    assert saved(decide_run(active(), (forgotten,), just_up, after)).state is RunState.ACTIVE


def test_an_end_absorbs():
    over = a_run(state=RunState.ENDED, verdict=Verdict.PASSED, cancel_at=START)
    assert decide_run(over, (lost(),), RunFacts(offers=(Offer(**_offer()),)), later(days=1)) == RunIsOver()


def _offer():
    return {"provider": "fake", "id": "x", "label": "X", "usd_per_hour_micro": 0, "declared": True}
