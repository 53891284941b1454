"""The login for the image of a run."""

from __future__ import annotations

from gpurun.domain.config import Job
from gpurun.domain.errors import SecretUnavailable
from gpurun.domain.image import RegistryLogin
from gpurun.domain.run import Run
from gpurun.flow import edges
from gpurun.flow.services import CALL_TIMEOUT_S, EngineServices
from gpurun.run.trust import NO_SECRETS, may_hold_secrets


async def login_of(services: EngineServices, run: Run, job: Job, edge: str) -> RegistryLogin | None:
    """From the secrets of the run's repository; None: the machine's own. Raises: SecretUnavailable."""
    keys = job.registry
    if keys is None:
        return None
    if not may_hold_secrets(run):
        raise SecretUnavailable(NO_SECRETS)
    password = await edges.call(edge, lambda: services.vault.own_use(run.repo, keys.password), timeout_s=CALL_TIMEOUT_S)
    return None if password is None else RegistryLogin(username=keys.username, password=password)
