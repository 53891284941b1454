"""Lets go of secrets that nobody holds any more: replaced versions in the store, values in this process's memory."""

from __future__ import annotations

import structlog

from gpurun.domain.secret import LINGER
from gpurun.flow import edges, failpoints
from gpurun.ports.clock import Clock
from gpurun.ports.store import Store
from gpurun.ports.vault import Vault

EVERY_S = 600.0
"""A value stays in memory for one to two of these after its attempt is gone."""

log = structlog.get_logger()


async def look_at_secrets(store: Store, vault: Vault) -> None:
    """One look."""
    await edges.commit(
        store, failpoints.SECRETS_FORGET, lambda tx: tx.forget_replaced(unused_since=tx.now() - LINGER), durable=False
    )
    vault.let_go(await store.read(lambda tx: tx.live_attempt_ids()))


async def keep_secrets_for_ever(store: Store, clock: Clock, vault: Vault) -> None:
    """Until cancelled."""
    while True:
        try:
            await look_at_secrets(store, vault)
        except Exception:  # the border of this loop: a database that restarts must not end the process
            log.exception("secrets_not_looked_at")
        await clock.sleep(EVERY_S)
