"""Every duration the engine knows, and the one backoff."""

from __future__ import annotations

from datetime import timedelta

PLANNING_LIMIT = timedelta(minutes=10)
APPROVAL_LIMIT = timedelta(days=13)
"""GitHub marks an unfinished check stale after 14 days."""
NO_OFFER_LIMIT = timedelta(minutes=15)
OFFER_POLL = timedelta(seconds=5)
RETRY_PAUSE = timedelta(seconds=10)

PREPARE_LIMIT = timedelta(minutes=30)
"""Slow and harmless work before create, such as pulling an image."""
PREPARE_PACE = timedelta(milliseconds=100)
"""Between two calls of `prepare`, which waits by itself: no spinning on one that does not."""
DEADLINE_SPARE = timedelta(minutes=10)
"""What the hard deadline leaves for source, weights and the end, above boot and `max_duration`."""
LIST_FRESH = timedelta(minutes=5)
"""No create where the provider's list was not clean for this long."""
LOOKS = (timedelta(seconds=5), timedelta(seconds=20), timedelta(seconds=60))
LOOKING_LIMIT = timedelta(minutes=10)
"""A failed list is no look, so looks alone would not end."""
UNSURE_LIMIT = timedelta(minutes=30)

QUIET = timedelta(seconds=60)
SILENT = timedelta(minutes=5)
STOP_GRACE = timedelta(seconds=30)
COLLECT_GRACE = timedelta(minutes=2)
"""What is added to that while the agent sends artifacts, for which it takes 100 s."""
FULL_HOST_GRACE = timedelta(seconds=3)
"""The same when the host's disk is nearly full: enough for the agent to kill the job and send the end of the log."""
DEADLINE_GRACE = timedelta(seconds=20)
"""The instance ends itself at its hard deadline and needs 10 s to leave behind what the agent could not tell."""

DESTROY_DOUBT = timedelta(minutes=30)
UNCONFIRMED_POLL = timedelta(minutes=5)
STRAY_SIGHTINGS = timedelta(minutes=2)

WATCH = timedelta(seconds=60)
"""A row that waits for others looks again this often, whatever became of the wake that should have come."""
WATCH_RUN = timedelta(minutes=5)
"""The same for a run whose attempt lives: whatever the attempt comes to wakes it in the same transaction."""
GIVE_UP_TRIES = 12
"""Failures of one step in a row (about 6 minutes) after which the attempt is torn down."""

_SLOT_POLL_MIN = timedelta(seconds=1)
_SLOT_POLL_MAX = timedelta(seconds=10)

_LIST_POLL_MIN = timedelta(milliseconds=50)

OBSERVE_LIVE_S = 15.0
OBSERVE_IDLE_S = 120.0


def backoff(tries: int, *, cap: timedelta = timedelta(seconds=60)) -> timedelta:
    """1, 2, 4 … 60 s for `tries` = 0, 1, 2 …"""
    return min(timedelta(seconds=2 ** min(tries, 20)), cap)


def slot_poll(waited: timedelta) -> timedelta:
    """Who has waited long for a free place may look less often."""
    return min(max(waited / 20, _SLOT_POLL_MIN), _SLOT_POLL_MAX)


def list_poll(waited: timedelta) -> timedelta:
    """A provider's first list after a start is a matter of moments; a later one may never come."""
    return min(max(waited / 4, _LIST_POLL_MIN), OFFER_POLL)
