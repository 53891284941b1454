from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gpurun.domain.offer import InstanceState, Preparation
from gpurun.domain.run import AttemptState, Phase, Result, ResultKind, RunState
from gpurun.run.decide_attempt import (
    Accepted,
    AskLastLog,
    AskLastWords,
    AttemptFacts,
    AttemptIsOver,
    Destroy,
    Destroyed,
    LastWords,
    LeftBehind,
    Look,
    Prepare,
    Rejected,
    SaveAttempt,
    SendCreate,
    StillThere,
    Unclear,
    decide_attempt,
)
from gpurun.run.timers import GIVE_UP_TRIES
from tests.fakes.clock import START
from tests.fakes.rows import PLAN, a_run, an_account, an_attempt

RUN = a_run(state=RunState.ACTIVE, plan=PLAN, attempts=1)
CANCELLED = replace(RUN, cancel_at=START, cancel_by="@eve")
PASSED = Result(kind=ResultKind.PASSED, exit_code=0)


def later(**delta):
    return START + timedelta(**delta)


def facts(**changes):
    return AttemptFacts(**{"account": an_account(), "receiver_up_at": START - timedelta(days=1), **changes})


def chosen(**changes):
    return an_attempt(**changes)


def creating(**changes):
    return an_attempt(**{"state": AttemptState.CREATING, "create_sent_at": START, **changes})


def looking(**changes):
    return creating(**{"state": AttemptState.LOOKING, **changes})


def unsure(**changes):
    return creating(**{"state": AttemptState.UNSURE, "claim_revoked_at": START, **changes})


def booting(**changes):
    return creating(**{"state": AttemptState.BOOTING, "instance_ref": "i-1", **changes})


def live(**changes):
    seen = {"claimed_at": START, "last_seen_at": START, "phase": Phase.CLAIMED, "observed": InstanceState.RUNNING}
    return booting(**{"state": AttemptState.LIVE, **seen, **changes})


def destroying(**changes):
    return booting(**{"state": AttemptState.DESTROYING, "destroy_asked_at": START, "result": PASSED, **changes})


def decide(attempt, at=START, run=RUN, **changes):
    return decide_attempt(attempt, run, facts(**changes), at)


def ends(attempt, at=START, run=RUN, left=LeftBehind()):  # noqa: B008 - frozen
    """The decision after the provider's log was read, which comes before every end that is not the agent's word."""
    assert decide(attempt, at, run) == AskLastLog()
    return decide(attempt, at, run, left_behind=left)


def saved(decision):
    assert isinstance(decision, SaveAttempt)
    return decision


def moved(decision):
    """(state, kind of result, its reason) that a decision writes."""
    saved(decision)
    result = decision.result
    return decision.row.state, result.kind if result else None, result.reason if result else ""


# chosen


def test_chosen_prepares_until_ready_then_sends_create_once():
    assert decide(chosen()) == Prepare()
    pulling = saved(decide(chosen(), prepared=Preparation(ready=False, message="pulling 43 %")))
    assert (pulling.row.state, pulling.row.preparing) == (AttemptState.CHOSEN, "pulling 43 %")
    assert pulling.row.due_at == later(milliseconds=100)
    assert decide(chosen(), prepared=Preparation(ready=True)) == SendCreate()


@pytest.mark.parametrize(
    "account",
    [
        None,
        an_account(list_ok_at=None),
        an_account(list_ok_at=START - timedelta(minutes=5)),
        an_account(broken_since=START),
    ],
)
def test_nothing_is_created_where_it_could_not_be_listed(account):
    waiting = saved(decide(chosen(), account=account, prepared=Preparation(ready=True)))
    assert waiting.row.state is AttemptState.CHOSEN
    assert waiting.row.due_at > START


@pytest.mark.parametrize(
    ("attempt", "run", "at", "kind", "reason"),
    [
        (chosen(), CANCELLED, START, ResultKind.CANCELLED, "asked"),
        (chosen(), replace(RUN, state=RunState.ENDED), START, ResultKind.LOST, "run_ended"),
        (chosen(), RUN, later(minutes=30), ResultKind.LOST, "prepare"),
        (chosen(tries=12, last_error="x"), RUN, START, ResultKind.LOST, "engine"),
    ],
)
def test_chosen_is_void_without_a_call(attempt, run, at, kind, reason):
    decision = decide(attempt, at, run)
    assert moved(decision) == (AttemptState.VOID, kind, reason)
    assert decision.row.due_at is None


def test_a_refused_image_is_no_instance():
    decision = decide(chosen(), prepared=Rejected("invalid", "no such image"))
    assert moved(decision) == (AttemptState.VOID, ResultKind.LOST, "invalid")
    assert decision.result.detail == "no such image"


# creating


def test_create_accepted_boots():
    decision = decide(creating(), created=Accepted("i-1"))
    assert moved(decision) == (AttemptState.BOOTING, None, "")
    assert decision.ref == "i-1"


@pytest.mark.parametrize(
    ("kind", "reason"), [("capacity", "no_capacity"), ("quota", "quota"), ("auth", "auth"), ("invalid", "invalid")]
)
def test_create_rejected_is_void(kind, reason):
    assert moved(decide(creating(), created=Rejected(kind, "no"))) == (AttemptState.VOID, ResultKind.LOST, reason)


@pytest.mark.parametrize("created", [None, Unclear("timed out")])
def test_an_unclear_create_is_looked_for_and_never_sent_again(created):
    decision = decide(creating(), created=created)
    assert moved(decision) == (AttemptState.LOOKING, None, "")
    assert decision.row.due_at == later(seconds=5)


def test_an_id_inside_an_error_is_a_stray():
    decision = decide(creating(), created=Unclear("500: made i-9", "i-9"))
    assert moved(decision) == (AttemptState.VOID, ResultKind.LOST, "create")
    assert decision.strays == ("i-9",)


def test_a_rejected_create_that_the_observer_saw_is_destroyed():
    decision = decide(creating(instance_ref="i-1"), created=Rejected("capacity", "no"))
    assert moved(decision) == (AttemptState.DESTROYING, ResultKind.LOST, "no_capacity")


def test_a_cancel_waits_for_the_outcome_of_create():
    assert moved(decide(creating(), run=CANCELLED, created=Accepted("i-1")))[0] is AttemptState.BOOTING
    assert moved(decide(booting(), run=CANCELLED)) == (AttemptState.DESTROYING, ResultKind.CANCELLED, "asked")
    # once claimed, user code may run: it is asked to stop, as any live attempt
    assert moved(decide(booting(claimed_at=START), run=CANCELLED)) == (AttemptState.LIVE, None, "")


# looking


def test_three_looks_that_find_nothing_leave_it_unsure():
    attempt, at = looking(due_at=later(seconds=5)), START
    for looks, seconds in enumerate((5, 20, 60)):
        assert saved(decide(attempt, at)).row.due_at == later(seconds=seconds)
        at = later(seconds=seconds)
        assert decide(attempt, at) == Look()
        decision = saved(decide(attempt, at, found=()))
        attempt = decision.row
        assert attempt.looks == looks + 1
    assert moved(decision) == (AttemptState.UNSURE, ResultKind.LOST, "create")
    assert attempt.claim_revoked_at == at


def test_one_instance_found_is_adopted():
    decision = decide(looking(), later(seconds=5), found=("i-1",))
    assert moved(decision) == (AttemptState.BOOTING, None, "")
    assert decision.ref == "i-1"
    assert moved(decide(looking(instance_ref="i-1")))[0] is AttemptState.BOOTING


def test_several_instances_of_one_name_are_all_destroyed():
    decision = decide(looking(), later(seconds=5), found=("i-1", "i-2", "i-3"))
    assert moved(decision) == (AttemptState.DESTROYING, ResultKind.LOST, "create")
    assert (decision.ref, decision.strays) == ("i-1", ("i-2", "i-3"))


def test_a_cancel_while_looking_gives_the_verdict_now_and_looks_go_on():
    decision = decide(looking(), later(seconds=1), CANCELLED)
    assert moved(decision) == (AttemptState.LOOKING, ResultKind.CANCELLED, "asked")
    over = replace(decision.row, result=decision.result)
    assert decide(over, later(seconds=5), CANCELLED) == Look()
    assert moved(decide(over, later(seconds=5), CANCELLED, found=("i-1",)))[0] is AttemptState.DESTROYING


def test_looking_ends_although_every_list_fails():
    assert decide(looking(), later(minutes=9)) == Look()
    assert moved(decide(looking(), later(minutes=10)))[0] is AttemptState.UNSURE


def test_who_claimed_exists_however_late_the_list_is():
    spoke = looking(looks=2, claimed_at=START)
    assert moved(decide(spoke, later(seconds=60), found=()))[0] is AttemptState.LOOKING
    assert moved(decide(replace(spoke, looks=9), later(minutes=10)))[0] is AttemptState.UNSURE


# unsure


def test_unsure_is_void_after_thirty_minutes_of_clean_lists_and_not_before():
    lost = unsure(result=Result(kind=ResultKind.LOST, reason="create"))
    early = an_account(list_ok_at=later(minutes=29))
    assert moved(decide(lost, later(minutes=40), account=early))[0] is AttemptState.UNSURE
    clean = an_account(list_ok_at=later(minutes=30))
    assert moved(decide(lost, later(minutes=30), account=clean)) == (AttemptState.VOID, None, "")


def test_unsure_and_seen_is_destroyed():
    assert moved(decide(unsure(instance_ref="i-1")))[0] is AttemptState.DESTROYING


# booting


def test_a_claim_makes_it_live():
    assert moved(decide(booting(claimed_at=START)))[0] is AttemptState.LIVE


@pytest.mark.parametrize(
    ("attempt", "at", "reason"),
    [
        (booting(observed=InstanceState.EXITED), later(seconds=5), "boot"),
        (booting(observed=InstanceState.ERROR), later(seconds=5), "boot"),
        (booting(observed_gone_at=START), later(seconds=5), "boot"),
        (booting(), later(seconds=600), "boot_timeout"),
        (booting(hard_deadline=later(seconds=30)), later(seconds=30), "boot_timeout"),
    ],
)
def test_an_instance_that_never_speaks_is_asked_for_its_last_words_and_lost(attempt, at, reason):
    assert decide(attempt, at) == AskLastWords()
    decision = decide(attempt, at, last_words=LastWords("", "Its last output: Killed"))
    assert moved(decision) == (AttemptState.DESTROYING, ResultKind.LOST, reason)
    assert decision.result.detail.endswith("Its last output: Killed")
    assert decision.row.destroy_asked_at == at


def test_an_image_without_python_is_the_users_fault():
    words = LastWords("no_python", "The image has no python3.")
    decision = decide(booting(observed=InstanceState.EXITED), last_words=words)
    assert moved(decision) == (AttemptState.DESTROYING, ResultKind.FAILED, "no_python")


def test_booting_waits_for_the_claim():
    waiting = saved(decide(booting(observed=InstanceState.RUNNING), later(seconds=599)))
    assert waiting.row.state is AttemptState.BOOTING
    assert waiting.row.due_at == later(seconds=600)


# live


def test_a_result_ends_the_instance():
    assert moved(decide(live(result=PASSED))) == (AttemptState.DESTROYING, None, "")


def test_max_duration_counts_from_setup_and_the_agent_gets_thirty_seconds():
    began = live(phase=Phase.RUNNING, phase_times={"setup": later(minutes=5), "running": later(minutes=7)})
    at = later(minutes=34)
    row = saved(decide(replace(began, last_seen_at=at), at)).row
    assert (row.run_deadline, row.stop_asked_at) == (later(minutes=35), None)
    at = later(minutes=35)
    row = saved(decide(replace(row, last_seen_at=at), at)).row
    assert (row.stop_asked_at, row.due_at) == (at, at + timedelta(seconds=30))
    decision = ends(row, at + timedelta(seconds=30))
    assert moved(decision) == (AttemptState.DESTROYING, ResultKind.TIMEOUT, "max_duration")


def test_a_cancel_asks_the_agent_and_waits_thirty_seconds():
    row = saved(decide(live(), run=CANCELLED)).row
    assert (row.state, row.stop_asked_at, row.due_at) == (AttemptState.LIVE, START, later(seconds=30))
    assert moved(decide(row, later(seconds=29), CANCELLED))[0] is AttemptState.LIVE
    assert moved(ends(row, later(seconds=30), CANCELLED)) == (
        AttemptState.DESTROYING,
        ResultKind.CANCELLED,
        "asked",
    )


def test_silence_is_lost_only_where_the_provider_does_not_say_running():
    silent = live(observed=InstanceState.UNKNOWN)
    assert saved(decide(silent, later(seconds=30))).row.due_at == later(seconds=60)
    assert moved(decide(silent, later(minutes=4)))[0] is AttemptState.LIVE
    assert moved(ends(silent, later(minutes=5))) == (AttemptState.DESTROYING, ResultKind.LOST, "silent")
    assert moved(decide(live(), later(minutes=5)))[0] is AttemptState.LIVE


def test_silence_is_counted_from_when_agents_could_reach_us():
    silent = live(observed=InstanceState.UNKNOWN)
    up = later(minutes=4)
    assert moved(decide(silent, later(minutes=8), receiver_up_at=up))[0] is AttemptState.LIVE
    assert decide(silent, later(minutes=9), receiver_up_at=up) == AskLastLog()


def test_a_last_log_that_cannot_be_read_does_not_keep_the_instance():
    ended = live(observed=InstanceState.EXITED, last_error="gpurun itself failed at this")
    assert decide(replace(ended, tries=GIVE_UP_TRIES - 1)) == AskLastLog()
    assert moved(decide(replace(ended, tries=GIVE_UP_TRIES))) == (AttemptState.DESTROYING, ResultKind.LOST, "host")
    assert moved(decide(live(tries=GIVE_UP_TRIES))) == (AttemptState.DESTROYING, ResultKind.LOST, "engine")


@pytest.mark.parametrize(
    ("attempt", "run", "at", "kind", "reason"),
    [
        (live(observed=InstanceState.EXITED), RUN, START, ResultKind.LOST, "host"),
        (live(observed_gone_at=START), RUN, START, ResultKind.LOST, "host"),
        (live(hard_deadline=later(minutes=1)), RUN, later(seconds=80), ResultKind.TIMEOUT, "deadline"),
        (live(hard_deadline=later(minutes=1)), CANCELLED, later(seconds=80), ResultKind.CANCELLED, "asked"),
        (
            live(hard_deadline=later(minutes=1), observed=InstanceState.EXITED),
            RUN,
            later(minutes=1),
            ResultKind.TIMEOUT,
            "deadline",
        ),
        (live(), replace(RUN, state=RunState.ENDED), START, ResultKind.LOST, "run_ended"),
    ],
)
def test_what_else_ends_a_live_attempt(attempt, run, at, kind, reason):
    assert moved(ends(attempt, at, run)) == (AttemptState.DESTROYING, kind, reason)


@pytest.mark.parametrize("attempt", [live(observed=InstanceState.EXITED), live(observed_gone_at=START)])
def test_an_instance_that_ended_after_a_cancel_was_cancelled(attempt):
    assert moved(ends(attempt, run=CANCELLED))[1:] == (ResultKind.CANCELLED, "asked")


@pytest.mark.parametrize(
    ("attempt", "sentence"),
    [
        (live(observed=InstanceState.EXITED, exit_code=137), "The agent in it was killed (exit code 137), by the job"),
        (live(observed=InstanceState.EXITED, exit_code=143), "It was told to stop (exit code 143), and not by gpurun."),
        (live(observed=InstanceState.EXITED, exit_code=75), "could not reach the bot"),
        (live(observed=InstanceState.EXITED, exit_code=1), "The agent in it ended with exit code 1."),
        (live(observed=InstanceState.EXITED), "The instance ended while the job ran."),
        (
            live(observed=InstanceState.EXITED, exit_code=0, observed_gone_at=START),
            "removed while the job ran, and not by",
        ),
    ],
)
def test_the_exit_code_of_an_instance_that_ended_is_told(attempt, sentence):
    assert sentence in ends(attempt).result.detail


def test_the_instance_has_time_after_its_deadline_to_leave_something_behind():
    waiting = saved(decide(live(hard_deadline=later(minutes=1)), later(seconds=79)))
    assert (waiting.row.state, waiting.row.due_at) == (AttemptState.LIVE, later(seconds=80))


@pytest.mark.parametrize(
    "attempt", [live(observed=InstanceState.EXITED), live(hard_deadline=START - timedelta(hours=1))]
)
def test_what_the_agent_left_behind_is_the_result(attempt):
    decision = ends(attempt, left=LeftBehind(PASSED))
    assert moved(decision) == (AttemptState.DESTROYING, ResultKind.PASSED, "")
    assert decision.result == PASSED


def test_a_lost_end_says_that_the_log_may_be_incomplete():
    assert ends(live(observed=InstanceState.EXITED)).result.detail.endswith("The log may be incomplete.")


def test_a_result_that_came_meanwhile_counts_whatever_was_left_behind():
    attempt = live(result=PASSED, observed=InstanceState.EXITED)
    decision = decide(attempt, left_behind=LeftBehind(Result(kind=ResultKind.FAILED)))
    assert moved(decision) == (AttemptState.DESTROYING, None, "")


# destroying


def test_destroy_is_repeated_until_it_is_positive():
    attempt, at, waits = destroying(), START, []
    for _ in range(9):
        assert decide(attempt, at) == Destroy()
        attempt = saved(decide(attempt, at, destroyed=StillThere("terminating"))).row
        waits.append((attempt.due_at - at).total_seconds())
        at = attempt.due_at
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert attempt.last_error == "terminating"
    gone = saved(decide(attempt, at, destroyed=Destroyed())).row
    assert (gone.state, gone.due_at, gone.gone_at) == (AttemptState.GONE, None, at)


def test_after_thirty_minutes_the_end_is_unconfirmed_and_asked_for_every_five_minutes():
    at = later(minutes=30)
    doubtful = saved(decide(destroying(tries=40), at)).row
    assert (doubtful.unconfirmed_at, doubtful.due_at) == (at, at)
    assert decide(doubtful, at) == Destroy()
    again = saved(decide(doubtful, at, destroyed=StillThere("?"))).row
    assert (again.unconfirmed_at, again.due_at) == (at, at + timedelta(minutes=5))
    assert decide(again, later(days=30)) == Destroy()


@pytest.mark.parametrize("state", [AttemptState.GONE, AttemptState.VOID])
def test_an_end_absorbs(state):
    over = destroying(state=state, observed=InstanceState.RUNNING, due_at=None)
    for run in (RUN, CANCELLED):
        assert decide(over, later(days=1), run, created=Accepted("i-2")) == AttemptIsOver()
