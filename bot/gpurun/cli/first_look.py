"""At the start of a server: do GitHub and the engine know us? Only the log is told; a start never depends on others."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import structlog

from gpurun.cli.an_engine import get_an_engine
from gpurun.domain.errors import ForgeRefused, GpurunError, ProviderUnavailable
from gpurun.domain.plan import Resources
from gpurun.ports.provider import Provider
from gpurun.wiring import App

CALL_TIMEOUT_S = 60.0
"""Longer than the parts' own timeouts: only for what hangs all the same."""

log = structlog.get_logger()


async def first_look(app: App | None, providers: Mapping[str, Provider]) -> None:
    """Once, beside the work. Raises nothing."""
    try:
        async with anyio.create_task_group() as looks:
            if app is not None:
                looks.start_soon(_look_at_github, app)
            for name, provider in providers.items():
                looks.start_soon(_look_at_provider, name, provider)
    except Exception:  # the border of a task that nobody waits for: what it finds may not end the server
        log.exception("first_look_failed")


async def _look_at_github(app: App) -> None:
    try:
        with anyio.fail_after(CALL_TIMEOUT_S):
            login = await app.bot_login()
    except ForgeRefused as error:
        log.warning(
            "github_app_refused",
            error=str(error),
            hint="Check GPURUN_GITHUB_APP_ID and GPURUN_GITHUB_PRIVATE_KEY(_FILE): both must be of the same App.",
        )
    except (GpurunError, TimeoutError) as error:
        log.warning("github_not_reachable", error=str(error) or "GitHub did not answer.")
    else:
        log.info("github_app", login=login)


async def _look_at_provider(name: str, provider: Provider) -> None:
    try:
        with anyio.fail_after(CALL_TIMEOUT_S):
            await provider.offers(Resources())
    except (GpurunError, TimeoutError) as error:
        hint = get_an_engine(error) if isinstance(error, ProviderUnavailable) else ""
        log.warning("provider_not_reachable", provider=name, error=str(error) or f"{name} did not answer.", hint=hint)
