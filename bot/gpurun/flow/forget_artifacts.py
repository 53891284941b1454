"""Lets go of the bytes of old artifacts. Their rows stay: path, size and sha256, and so the manifest and its digest."""

from __future__ import annotations

from datetime import timedelta

import structlog

from gpurun.domain.stream import Artifact, unfinished_blobs
from gpurun.flow import edges, failpoints
from gpurun.ports.bytes import Blobs
from gpurun.ports.clock import Clock
from gpurun.ports.store import Store, Tx
from gpurun_agent.protocol import MAX_TOGETHER

EVERY_S = 3600.0
FIRST_AFTER_S = 1.0
"""A process begins with work that somebody waits for."""
BATCH = 200
DELETE_TIMEOUT_S = 60.0
HALF_SENT_FOR = timedelta(days=7)
"""The only file of an attempt, of which no row tells, is looked for so long: a server may be off meanwhile."""

log = structlog.get_logger()


async def forget_once(store: Store, blobs: Blobs, keep: timedelta) -> int:
    """How many files there were: BATCH means that there may be more.

    Bytes first: a process that dies in between finds the rows again, and deletes what is not there any more.
    """
    old, keys = await store.read(lambda tx: _old(tx, keep))
    await edges.call(failpoints.ARTIFACTS_DELETE, lambda: blobs.delete(*keys), timeout_s=DELETE_TIMEOUT_S)

    def drop(tx: Tx) -> None:
        for attempt_id, artifact in old:
            tx.drop_bytes(attempt_id, artifact.path)

    await edges.commit(store, failpoints.ARTIFACTS_FORGET, drop, durable=False)
    return len(old)


async def forget_for_ever(store: Store, blobs: Blobs, clock: Clock, keep: timedelta) -> None:
    """Until cancelled."""
    await clock.sleep(FIRST_AFTER_S)
    while True:
        try:
            while await forget_once(store, blobs, keep) == BATCH:
                pass
        except Exception:  # the border of this loop: a database or a disk in trouble must not end the process
            log.exception("artifacts_not_forgotten")
        await clock.sleep(EVERY_S)


def _old(tx: Tx, keep: timedelta) -> tuple[tuple[tuple[str, Artifact], ...], tuple[str, ...]]:
    """And the keys of their bytes, with those of files that were half sent when their attempt ended."""
    before = tx.now() - keep
    old = tx.old_artifacts(ended_before=before, limit=BATCH)
    half_sent: list[str] = []
    for attempt_id in sorted({id_ for id_, _ in old}):
        half_sent += unfinished_blobs(attempt_id, tx.artifacts(attempt_id), MAX_TOGETHER)
    bare = tx.left_nothing(ended_after=before - HALF_SENT_FOR, ended_before=before)
    for attempt_id in bare:
        half_sent += unfinished_blobs(attempt_id, (), MAX_TOGETHER)
    return old, (*(artifact.blob for _, artifact in old), *half_sent)
