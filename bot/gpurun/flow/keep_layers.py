"""Keeps layers of `setup` below their limit, and removes volumes that nobody knows: of containers that were killed."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from gpurun.flow import edges, failpoints
from gpurun.flow.keep_cache import EVERY_S, is_over
from gpurun.flow.services import CALL_TIMEOUT_S
from gpurun.ports.clock import Clock
from gpurun.ports.layers import Layers
from gpurun.ports.provider import KeepsLayers, Provider
from gpurun.ports.store import Store

REMOVE_TIMEOUT_S = 300.0

log = structlog.get_logger()


async def look_at_layers(store: Store, layers: Layers, providers: Iterable[Provider]) -> None:
    """One look. Volumes are listed before their records are read: who is about to make one has a record by then."""
    users = await edges.call(failpoints.LAYERS_USERS, layers.users, timeout_s=CALL_TIMEOUT_S)
    over = await store.read(lambda tx: frozenset(user for user in users if is_over(tx, user)))
    shelf = await edges.call(failpoints.LAYERS_SHELF, layers.shelf, timeout_s=CALL_TIMEOUT_S)
    for provider in [one for one in providers if isinstance(one, KeepsLayers)]:
        await _look_at(layers, provider, shelf, over)


async def _look_at(layers: Layers, provider: KeepsLayers, shelf: str, over: frozenset[str]) -> None:
    volumes = await edges.call(failpoints.LAYERS_LIST, lambda: provider.layer_volumes(shelf), timeout_s=CALL_TIMEOUT_S)
    gone = await edges.call(failpoints.LAYERS_TIDY, lambda: layers.tidy(over, volumes), timeout_s=CALL_TIMEOUT_S)
    await edges.call(failpoints.LAYERS_REMOVE, lambda: provider.remove_layers(gone), timeout_s=REMOVE_TIMEOUT_S)


async def keep_layers_for_ever(store: Store, clock: Clock, layers: Layers, providers: Iterable[Provider]) -> None:
    """Until cancelled."""
    while True:
        try:
            await look_at_layers(store, layers, providers)
        except Exception:  # the border of this loop: an engine or a database that restarts must not end the process
            log.exception("layers_not_tidied")
        await clock.sleep(EVERY_S)
