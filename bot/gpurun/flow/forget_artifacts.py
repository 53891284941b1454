"""Lets go of the bytes of old artifacts. Their rows stay: path, size and sha256, and so the manifest and its digest."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import structlog

from gpurun.domain.stream import Artifact
from gpurun.flow import edges, failpoints
from gpurun.ports.bytes import Blobs
from gpurun.ports.clock import Clock
from gpurun.ports.store import Store

EVERY_S = 3600.0
FIRST_AFTER_S = 1.0
"""A process begins with work that somebody waits for."""
BATCH = 200
DELETE_TIMEOUT_S = 60.0

log = structlog.get_logger()


async def forget_once(store: Store, blobs: Blobs, keep: timedelta) -> int:
    """How many files there were: BATCH means that there may be more.

    Bytes first: a process that dies in between finds the rows again, and deletes what is not there any more.
    """
    old = await store.read(lambda tx: tx.old_artifacts(ended_before=tx.now() - keep, limit=BATCH))
    await edges.call(
        failpoints.ARTIFACTS_DELETE,
        lambda: _delete(blobs, (artifact for _, artifact in old)),
        timeout_s=DELETE_TIMEOUT_S,
    )
    await edges.commit(
        store,
        failpoints.ARTIFACTS_FORGET,
        lambda tx: [tx.drop_bytes(attempt_id, artifact.path) for attempt_id, artifact in old],
        durable=False,
    )
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


async def _delete(blobs: Blobs, artifacts: Iterable[Artifact]) -> None:
    for artifact in artifacts:
        await blobs.delete(artifact.blob)
