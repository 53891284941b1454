"""The volume of `setup`: chosen before create, let go when the instance is gone."""

from __future__ import annotations

from dataclasses import replace

from gpurun.domain.layer import LayerUse, LayerWish
from gpurun.domain.offer import Launch
from gpurun.domain.plan import Plan
from gpurun.domain.run import Attempt, Run
from gpurun.flow import edges, failpoints
from gpurun.flow.services import CALL_TIMEOUT_S, EngineServices
from gpurun.plan.layer import layer_key
from gpurun.ports.provider import KeepsLayers, Provider, SaysPlatform
from gpurun.run.layers import layer_scopes


async def with_layer(services: EngineServices, attempt: Attempt, run: Run, plan: Plan, launch: Launch) -> Launch:
    """With a volume to mount, where `setup` may have one. Raises Transient, Refused."""
    provider = services.provider(attempt.offer.provider)
    read, write = layer_scopes(run)
    if not write or not layer_key(plan, "") or not isinstance(provider, KeepsLayers):
        return launch

    async def choose() -> LayerUse | None:
        wish = LayerWish(
            repo=f"{run.repo.id}:{run.repo.name}",
            key=layer_key(plan, await _platform(provider)),
            read=read,
            write=write,
        )
        return await services.layers.use(wish, user=attempt.id, until=attempt.hard_deadline)

    return replace(launch, layer=await edges.call(failpoints.ATTEMPT_LAYER, choose, timeout_s=CALL_TIMEOUT_S))


async def let_layer_go(services: EngineServices, attempt: Attempt) -> None:
    """The attempt does not use it any more. A volume that cannot be removed now is found later."""
    volumes = await edges.call(
        failpoints.ATTEMPT_LAYER_LET_GO, lambda: services.layers.let_go(attempt.id), timeout_s=CALL_TIMEOUT_S
    )
    provider = services.provider(attempt.offer.provider)
    if volumes and isinstance(provider, KeepsLayers):
        await edges.call(
            failpoints.ATTEMPT_LAYER_REMOVE, lambda: provider.remove_layers(volumes), timeout_s=CALL_TIMEOUT_S
        )


async def _platform(provider: Provider) -> str:
    return await provider.platform() if isinstance(provider, SaysPlatform) else ""
