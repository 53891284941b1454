"""Has providers remove images that they built and nobody needed for long."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from gpurun.domain.errors import Refused, Transient
from gpurun.flow import edges, failpoints
from gpurun.ports.clock import Clock
from gpurun.ports.provider import Builds, Provider

EVERY_S = 3600.0
FIRST_AFTER_S = 1.0
"""A process begins with work that somebody waits for."""
TIDY_TIMEOUT_S = 120.0
"""An engine takes seconds to remove a large image, and nobody waits for it."""

log = structlog.get_logger()


async def tidy_builds(providers: Iterable[Provider]) -> None:
    """One look at each."""
    for provider in providers:
        if isinstance(provider, Builds):
            try:
                await edges.call(failpoints.BUILDS_TIDY, provider.tidy_builds, timeout_s=TIDY_TIMEOUT_S)
            except (Transient, Refused) as error:
                log.warning("builds_not_tidied", provider=provider.name, error=str(error))


async def tidy_builds_for_ever(providers: Iterable[Provider], clock: Clock) -> None:
    """Until cancelled."""
    await clock.sleep(FIRST_AFTER_S)
    while True:
        try:
            await tidy_builds(providers)
        except Exception:  # the border of this loop: an engine in trouble must not end the process
            log.exception("builds_not_tidied")
        await clock.sleep(EVERY_S)
