"""Before create: weights into the bot's cache, where the instance mounts them. No rented machine waits for bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpurun.domain.errors import PinNotFound
from gpurun.domain.offer import Launch, Preparation
from gpurun.domain.plan import Plan
from gpurun.domain.run import FETCHED, FETCHING, Attempt
from gpurun.flow import edges, failpoints
from gpurun.flow.services import CALL_TIMEOUT_S, EngineServices
from gpurun.ports import bytes as cached
from gpurun.ports.provider import MountsWeights
from gpurun.report.text import size
from gpurun.run.decide_attempt import BuildFailed, Rejected, WrongWeights


@dataclass(frozen=True, slots=True)
class Prepared:
    """What create is called with, how far it is, and what of that has begun or ended, by the clock of the rows."""

    launch: Launch
    outcome: Preparation | Rejected | WrongWeights | BuildFailed
    times: Mapping[str, datetime] = field(default_factory=dict)


async def lay_out_weights(
    services: EngineServices, attempt: Attempt, plan: Plan, launch: Launch, *, now: datetime, wait_s: float
) -> Prepared:
    """With the folder to mount once all is there. Raises HubUnavailable."""
    provider = services.provider(attempt.offer.provider)
    if not plan.models or not isinstance(provider, MountsWeights):
        return Prepared(launch, Preparation(ready=True))
    asked_at = services.clock.monotonic()
    try:
        came = await edges.call(
            failpoints.ATTEMPT_WEIGHTS,
            lambda: services.hub.lay_out(plan.models, user=attempt.id, until=attempt.hard_deadline, wait_s=wait_s),
            timeout_s=CALL_TIMEOUT_S,
        )
    except PinNotFound as error:
        return Prepared(launch, WrongWeights(str(error)), {FETCHING: now})
    ended_at = now + timedelta(seconds=services.clock.monotonic() - asked_at)
    times = {FETCHED: ended_at} if FETCHING in attempt.phase_times else {}
    return Prepared(replace(launch, weights=came.folder), _told(came), times if came.folder else {FETCHING: now})


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
    part = f"{100 * done // came.bytes_total} % of {size(came.bytes_total)}" if came.bytes_missing else ""
    message = f"downloading weights {part}" if part else "verifying weights"
    return Preparation(ready=bool(came.folder), message=message, done_bytes=done, total_bytes=came.bytes_total)
