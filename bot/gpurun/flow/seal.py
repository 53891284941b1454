"""The sealer: gives audit rows their position and the hash of the row before, once a second."""

from __future__ import annotations

import structlog

from gpurun.flow import edges, failpoints
from gpurun.ports.clock import Clock
from gpurun.ports.store import Store

EVERY_S = 1.0
FIRST_AFTER_S = 0.2
"""A process begins with work that somebody waits for, and on SQLite a seal stands in the way of its first commits."""
BATCH = 1000

log = structlog.get_logger()


async def seal_once(store: Store) -> int:
    """How many rows were chained; with several processes only one seals at a time, the others get 0."""
    return await edges.commit(store, failpoints.SEAL, lambda tx: tx.seal_audit(limit=BATCH))


async def seal_for_ever(store: Store, clock: Clock) -> None:
    """Until cancelled. A backlog is worked off without waiting."""
    await clock.sleep(FIRST_AFTER_S)
    while True:
        if await _sealed(store) < BATCH:
            await clock.sleep(EVERY_S)


async def _sealed(store: Store) -> int:
    try:
        return await seal_once(store)
    except Exception:  # the border of this loop: a database that restarts must not end the process
        log.exception("not_sealed")
        return 0
