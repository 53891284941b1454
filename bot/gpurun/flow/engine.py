"""The engine: what it needs, and its handlers. One handler a kind of row, one step a call.

A step: read rows -> decide (pure) -> at most one call that changes the world -> one transaction, in which the decision
is made again on fresh rows with the call's answer. What others wrote meanwhile is thus never overlooked.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpurun.flow import edges, failpoints
from gpurun.flow.engine_attempt import AttemptSteps
from gpurun.flow.engine_run import RunSteps
from gpurun.flow.observe import Observer, StraySteps
from gpurun.flow.services import AgentBundle, EngineServices
from gpurun.flow.worker import Handler
from gpurun.ports.store import Kind, Tx

__all__ = ["AgentBundle", "EngineServices", "handlers", "know_providers"]


def handlers(services: EngineServices) -> Mapping[Kind, Handler]:
    """What a worker needs to carry out runs."""
    return {
        Kind.RUN: RunSteps(services),
        Kind.ATTEMPT: AttemptSteps(services),
        Kind.PROVIDER_ACCOUNT: Observer(services),
        Kind.STRAY: StraySteps(services),
    }


async def know_providers(services: EngineServices) -> None:
    """Each configured provider has its account row, so that it is watched. At every start."""

    def ensure(tx: Tx) -> None:
        for name in services.providers:
            tx.ensure_account(name)
            tx.wake(Kind.PROVIDER_ACCOUNT, name)

    await edges.commit(services.store, failpoints.OBSERVE_ACCOUNTS, ensure)
