"""What becomes of an installation that GitHub refuses as a whole: for all its rows, over all processes."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpurun.domain.errors import ForgeLimited
from gpurun.ports.store import Tx

PAUSE_MAX = timedelta(minutes=15)
TOLD_PAUSE_MAX = timedelta(hours=1)
"""GitHub's longest limit is that of an hour; what names a longer one is not GitHub."""
GIVE_UP_STRIKES = 100
"""A day of suspension, at a quarter of an hour each."""


def limited(tx: Tx, installation_id: int, limit: ForgeLimited) -> datetime:
    """Nothing is asked for this installation until then: GitHub bans an App that does not wait."""
    strikes = tx.strike(installation_id)
    asked = timedelta(seconds=min(limit.pause_s, TOLD_PAUSE_MAX.total_seconds()))
    until = tx.now() + (asked if limit.told else min(asked * 2 ** min(strikes - 1, 10), PAUSE_MAX))
    tx.pause_install(installation_id, until)
    return until


def suspended(tx: Tx, installation_id: int) -> tuple[datetime, bool]:
    """Until when to wait before one row looks again, and whether it is time to give up."""
    strikes = tx.strike(installation_id)
    until = tx.now() + min(timedelta(minutes=1) * 2 ** min(strikes - 1, 10), PAUSE_MAX)
    tx.pause_install(installation_id, until)
    return until, strikes > GIVE_UP_STRIKES
