"""Before create: weights into the bot's cache, where the instance mounts them. No rented machine waits for bytes."""

from __future__ import annotations

from dataclasses import replace

from gpurun.domain.errors import PinNotFound
from gpurun.domain.offer import Launch, Preparation
from gpurun.domain.plan import Plan
from gpurun.domain.run import Attempt
from gpurun.flow import edges, failpoints
from gpurun.flow.services import CALL_TIMEOUT_S, EngineServices
from gpurun.ports import bytes as cached
from gpurun.ports.provider import MountsWeights
from gpurun.run.decide_attempt import WrongWeights


async def lay_out_weights(
    services: EngineServices, attempt: Attempt, plan: Plan, launch: Launch, *, wait_s: float
) -> tuple[Launch, Preparation | WrongWeights]:
    """With the folder to mount once all is there. Raises HubUnavailable."""
    provider = services.provider(attempt.offer.provider)
    if not plan.models or not isinstance(provider, MountsWeights):
        return launch, Preparation(ready=True)
    try:
        came = await edges.call(
            failpoints.ATTEMPT_WEIGHTS,
            lambda: services.hub.lay_out(plan.models, user=attempt.id, until=attempt.hard_deadline, wait_s=wait_s),
            timeout_s=CALL_TIMEOUT_S,
        )
    except PinNotFound as error:
        return launch, WrongWeights(str(error))
    return replace(launch, weights=came.folder), _told(came)


async def let_weights_go(services: EngineServices, attempt: Attempt) -> None:
    """The attempt does not use them any more."""
    await edges.call(failpoints.ATTEMPT_LET_GO, lambda: services.hub.unuse(attempt.id), timeout_s=CALL_TIMEOUT_S)


def side_by_side(image: Preparation, weights: Preparation) -> Preparation:
    """How far both are. Raises nothing; what is ready is not told."""
    waiting = [one.message for one in (image, weights) if not one.ready and one.message]
    return Preparation(
        ready=image.ready and weights.ready,
        message=", ".join(waiting),
        done_bytes=image.done_bytes + weights.done_bytes,
        total_bytes=image.total_bytes + weights.total_bytes,
    )


def _told(came: cached.Preparation) -> Preparation:
    done = came.bytes_total - came.bytes_missing
    part = f"{100 * done // came.bytes_total} %" if came.bytes_missing else ""
    message = f"downloading weights {part}" if part else "verifying weights"
    return Preparation(ready=bool(came.folder), message=message, done_bytes=done, total_bytes=came.bytes_total)
