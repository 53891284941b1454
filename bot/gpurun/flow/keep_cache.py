"""Keeps the cache of weights below its limit, and forgets uses of attempts that are over."""

from __future__ import annotations

import structlog

from gpurun.domain.run import AttemptState
from gpurun.flow import edges, failpoints
from gpurun.flow.services import CALL_TIMEOUT_S
from gpurun.ports.bytes import Hub
from gpurun.ports.clock import Clock
from gpurun.ports.store import Store, Tx

EVERY_S = 600.0
TIDY_TIMEOUT_S = 300.0
"""Removing terabytes of small files may take long, and nobody waits for it but who wants to lay something out."""

log = structlog.get_logger()


async def look_at_cache(store: Store, hub: Hub) -> None:
    """One look. A use of an attempt that this store does not know is somebody else's, and ends with its deadline."""
    users = await edges.call(failpoints.CACHE_USERS, hub.users, timeout_s=CALL_TIMEOUT_S)
    over = await store.read(lambda tx: frozenset(user for user in users if is_over(tx, user)))
    await edges.call(failpoints.CACHE_TIDY, lambda: hub.tidy(over), timeout_s=TIDY_TIMEOUT_S)


async def keep_cache_for_ever(store: Store, clock: Clock, hub: Hub) -> None:
    """Until cancelled."""
    while True:
        try:
            await look_at_cache(store, hub)
        except Exception:  # the border of this loop: a full disk or a database that restarts must not end the process
            log.exception("cache_not_tidied")
        await clock.sleep(EVERY_S)


def is_over(tx: Tx, attempt_id: str) -> bool:
    """For good: these states absorb, so that what is read here stays true."""
    attempt = tx.attempt(attempt_id)
    return attempt is not None and attempt.state in (AttemptState.GONE, AttemptState.VOID)
