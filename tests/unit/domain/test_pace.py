"""The arithmetic of slots: never more than GitHub allows, whoever wants what and when."""

from __future__ import annotations

import itertools
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.pace import (
    DEFAULT,
    FOR_VERDICTS,
    SLOT_KEEPS,
    Bucket,
    Budget,
    Pace,
    Urgency,
    budget_of,
    have_read,
    may_read,
    turn,
)
from tests.fakes.clock import START


def most_within(moments, window):
    """The fullest window of that length."""
    moments = sorted(moments)
    return max((sum(1 for at in moments if 0 <= (at - first) / window < 1) for first in moments), default=0)


wishes = st.lists(
    st.tuples(st.floats(0, 400), st.sampled_from(list(Urgency))).map(
        lambda pair: (timedelta(seconds=pair[0]), pair[1])
    ),
    min_size=1,
    max_size=300,
)


@given(wishes)
def test_no_window_ever_holds_more_than_github_allows(wanted):
    pace, now, sent = Pace(), START, []
    for wait, urgency in wanted:
        now += wait
        got = turn(pace, urgency, now)
        pace = got.pace
        if got.slot is not None:
            sent.append(got.slot)
    assert most_within(sent, timedelta(minutes=1)) <= 70
    assert most_within(sent, timedelta(hours=1)) <= 400


@given(wishes)
def test_a_verdict_always_gets_a_slot_and_in_turn(wanted):
    pace, now, slots = Pace(), START, []
    for wait, _ in wanted:
        now += wait / 40
        got = turn(pace, Urgency.VERDICT, now)
        pace = got.pace
        assert got.slot is not None
        assert got.at == got.slot >= now
        slots.append(got.slot)
    assert slots == sorted(slots)


def spend(pace, count, urgency=Urgency.VERDICT, at=START):
    """After so many writes at once."""
    for _ in range(count):
        pace = turn(pace, urgency, at).pace
    return pace


def slots_at_once(urgency):
    """How many of that kind can be had without a wait, from a full bucket."""
    pace, count = Pace(), 0
    while (got := turn(pace, urgency, START)).slot is not None and got.slot <= START:
        pace, count = got.pace, count + 1
    return count


def test_edits_give_way_before_the_first_sign_that_before_an_answer_and_all_before_the_verdict():
    order = (Urgency.OTHER, Urgency.ACK, Urgency.ANSWER, Urgency.VERDICT)
    assert [slots_at_once(urgency) for urgency in order] == [8, 14, 16, 40]


def shared(wanted):
    """When the verdicts among the writers are sent, and the same verdicts with nobody else and their part alone."""
    own = Budget(
        hour=Bucket(burst=int(DEFAULT.hour.burst * FOR_VERDICTS), every=DEFAULT.hour.every),
        minute=Bucket(burst=int(DEFAULT.minute.burst * FOR_VERDICTS), every=DEFAULT.minute.every),
        reads=DEFAULT.reads,
    )
    now, pace, alone, together, apart = START, Pace(), Pace(), [], []
    for wait, urgency in wanted:
        now += wait
        got = turn(pace, urgency, now)
        pace = got.pace
        if urgency is Urgency.VERDICT:
            together.append(got.slot)
            by_itself = turn(alone, urgency, now, budget=own)
            alone = by_itself.pace
            apart.append(by_itself.slot)
    return together, apart


crowds = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 0.1, 1, 5, 60, 600]), st.sampled_from(list(Urgency)), st.integers(1, 60)),
    min_size=1,
    max_size=12,
).map(
    lambda groups: [(timedelta(seconds=wait if not i else 0), urgency) for wait, urgency, n in groups for i in range(n)]
)


@given(crowds)
def test_no_verdict_is_later_than_it_would_be_alone_with_the_part_that_is_kept_for_it(wanted):
    together, apart = shared(wanted)
    assert all(mine <= alone for mine, alone in zip(together, apart, strict=True))


@given(st.lists(st.sampled_from([one for one in Urgency if one is not Urgency.VERDICT]), max_size=200))
def test_whatever_others_wanted_before_two_dozen_verdicts_go_at_once(wanted):
    pace = Pace()
    for urgency in wanted:
        pace = turn(pace, urgency, START).pace
    for _ in range(24):
        got = turn(pace, Urgency.VERDICT, START)
        assert got.slot == START
        pace = got.pace


def test_without_verdicts_others_have_the_whole_hour():
    """What is kept is kept free, not unused: each slot that comes in goes to whoever asks."""
    pace, now, sent = Pace(), START, 0
    for _ in range(3600):
        now += timedelta(seconds=1)
        got = turn(pace, Urgency.OTHER, now)
        pace = got.pace
        sent += got.slot is not None
    assert sent >= 320


def test_who_gives_way_comes_back_one_after_the_other():
    pace, times = spend(Pace(), 60), []
    for _ in range(5):
        got = turn(pace, Urgency.OTHER, START)
        assert got.slot is None
        pace = got.pace
        times.append(got.at)
    assert [b - a for a, b in itertools.pairwise(times)] == [DEFAULT.hour.every] * 4
    late = START + timedelta(days=1)
    assert turn(pace, Urgency.OTHER, late).at == late


def test_a_first_sign_does_not_wait_behind_the_edits_that_gave_way():
    pace = spend(spend(Pace(), 30), 100, Urgency.OTHER)
    got = turn(pace, Urgency.ACK, START)
    assert got.slot is None
    assert got.at < START + timedelta(minutes=2)
    assert turn(got.pace, Urgency.ACK, got.at).slot == got.at


def test_nobody_waits_for_longer_than_a_quarter_of_an_hour_to_ask_again():
    pace = spend(Pace(), 2000)
    for _ in range(500):
        got = turn(pace, Urgency.ACK, START)
        pace = got.pace
        assert got.at <= START + timedelta(minutes=15)


def test_a_slot_is_used_when_its_time_comes_and_lost_when_it_comes_much_too_late():
    booked = turn(spend(Pace(), 100), Urgency.VERDICT, START)
    soon = turn(booked.pace, Urgency.VERDICT, booked.slot + timedelta(seconds=1), held=booked.slot)
    assert (soon.pace, soon.at) == (booked.pace, booked.slot + timedelta(seconds=1))
    early = turn(booked.pace, Urgency.VERDICT, START, held=booked.slot)
    assert early.at == booked.slot
    late = turn(booked.pace, Urgency.VERDICT, booked.slot + SLOT_KEEPS * 2, held=booked.slot)
    assert late.pace != booked.pace


@given(st.lists(st.floats(0, 60), min_size=1, max_size=500))
def test_reads_stay_below_the_points_of_a_minute_and_the_requests_of_an_hour(waits):
    pace, now, read = Pace(), START, []
    for wait in waits:
        now += timedelta(seconds=wait)
        at = may_read(pace, now)
        pace = have_read(pace, at, 5)
        read += [at] * 5
    assert most_within(read, timedelta(minutes=1)) <= 475
    assert most_within(read, timedelta(hours=1)) <= 4410


def test_another_server_may_have_other_limits():
    wide = budget_of(400_000)
    pace = Pace()
    for _ in range(5000):
        got = turn(pace, Urgency.OTHER, START, budget=wide)
        assert got.slot == START
        pace = got.pace
    narrow = budget_of(20)
    assert turn(turn(Pace(), Urgency.VERDICT, START, budget=narrow).pace, Urgency.VERDICT, START, budget=narrow).slot
