"""How fast one installation of the App may speak to GitHub, over all processes. Pure: values in, values out.

GitHub allows an installation 500 requests an hour and 80 a minute that make content, 900 points a minute (a read is
one, a write five), and 5,000 requests an hour, and bans an App that does not care. We stay below each of them.

Source: https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api, read 2026-12-01.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Bucket:
    """So many at once, and one more each `every`: at most `burst + hour / every` in any hour."""

    burst: int
    every: timedelta

    def free_at(self, booked_until: datetime | None, now: datetime, *, keep: float = 0.0) -> datetime:
        """When one can be had and the part `keep` of the burst is left afterwards. `booked_until` is None at first."""
        room = self.every * (self.burst * (1 - keep))
        return now if booked_until is None else max(now, booked_until + self.every - room)

    def take(self, booked_until: datetime | None, at: datetime, *, count: int = 1) -> datetime:
        """The new `booked_until`, after `count` were taken at `at`."""
        return max(booked_until or at, at) + self.every * count


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one installation may use. The figures in brackets are those of the default, 400 writes an hour."""

    hour: Bucket
    """Writes: 80 at once, one each 11.25 s. The rest of GitHub's 500 is for checks with many annotations."""
    minute: Bucket
    """Writes: 40 at once, one each 2 s, so at most 70 a minute, which are 350 points."""
    reads: Bucket
    """Reads: 400 at once, one each 0.9 s, so at most 467 points a minute and 4,400 an hour."""


def budget_of(writes_an_hour: int) -> Budget:
    """A server of one's own may have other limits, or none."""
    share = writes_an_hour / WRITES_AN_HOUR
    return Budget(
        hour=Bucket(burst=max(writes_an_hour // 5, 1), every=timedelta(seconds=11.25 / share)),
        minute=Bucket(burst=max(int(40 * share), 1), every=timedelta(seconds=2 / share)),
        reads=Bucket(burst=max(int(400 * share), 1), every=timedelta(seconds=0.9 / share)),
    )


WRITES_AN_HOUR = 400
DEFAULT = budget_of(WRITES_AN_HOUR)

SLOT_KEEPS = timedelta(seconds=60)
"""A slot that was not used for so long (a pause, a restart) is lost: many late ones at once would be too many."""
LOOK_AGAIN = timedelta(minutes=15)
"""The longest wait of what gives way, and of what is kept out."""


class Urgency(StrEnum):
    """Who goes first. What gives way is never lost: its row shows the newest truth when its turn comes."""

    VERDICT = "verdict"
    """Always gets a slot, in turn."""
    ANSWER = "answer"
    """What somebody who may do something here waits for."""
    ACK = "ack"
    """A first sign of life."""
    OTHER = "other"
    """An edit that a later one replaces, or a word to somebody without rights."""


FOR_VERDICTS = 0.6
"""The part of each bucket that nobody else touches. So a verdict is never later than it would be if verdicts were alone
and had a bucket of that size, filled as fast as this one: docs/decisions/0037-what-is-kept-for-verdicts.md."""
KEEP = {Urgency.VERDICT: 0.0, Urgency.ANSWER: FOR_VERDICTS, Urgency.ACK: 0.65, Urgency.OTHER: 0.8}
"""The part that must be left for those who are more urgent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What an installation has used and booked."""

    hour_until: datetime | None = None
    minute_until: datetime | None = None
    """Until when slots for writes are booked, in each bucket."""
    reads_until: datetime | None = None
    yielding_until: datetime | None = None
    """When the last of the edits that gave way will ask again, so that they ask one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The answer to who wants to write."""

    pace: Pace
    at: datetime
    """Now, or when to ask again."""
    slot: datetime | None
    """What was booked; None for who has to ask again."""


def turn(
    pace: Pace, urgency: Urgency, now: datetime, *, held: datetime | None = None, budget: Budget = DEFAULT
) -> Turn:
    """When to write. `held`: the slot that was booked before, still to be used."""
    if held is not None and now - held <= SLOT_KEEPS:
        return Turn(pace=pace, at=max(held, now), slot=held)
    free = max(
        budget.hour.free_at(pace.hour_until, now, keep=KEEP[urgency]),
        budget.minute.free_at(pace.minute_until, now, keep=KEEP[urgency]),
    )
    if free > now and urgency in (Urgency.ANSWER, Urgency.ACK):
        return Turn(pace=pace, at=min(free, now + LOOK_AGAIN), slot=None)  # not behind the many edits that wait
    if free > now and urgency is Urgency.OTHER:
        again = min(max(free, pace.yielding_until or free), now + LOOK_AGAIN)
        waiting = replace(pace, yielding_until=again + budget.hour.every)
        return Turn(pace=waiting, at=again, slot=None)
    booked = replace(
        pace,
        hour_until=budget.hour.take(pace.hour_until, free),
        minute_until=budget.minute.take(pace.minute_until, free),
    )
    return Turn(pace=booked, at=free, slot=free)


def may_read(pace: Pace, now: datetime, *, budget: Budget = DEFAULT) -> datetime:
    """Now, or when it will be the turn of who books it now with `have_read`."""
    return budget.reads.free_at(pace.reads_until, now)


def have_read(pace: Pace, now: datetime, count: int, *, budget: Budget = DEFAULT) -> Pace:
    """After `count` requests that change nothing, made or booked."""
    return replace(pace, reads_until=budget.reads.take(pace.reads_until, now, count=count))
