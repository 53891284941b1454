"""The login for the image of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic import SecretStr

from gpurun.domain.config import Job
from gpurun.domain.errors import SecretUnavailable
from gpurun.domain.image import RegistryLogin
from gpurun.domain.run import Run
from gpurun.run.trust import NO_SECRETS, may_hold_secrets


async def login_of(run: Run, job: Job, own_use: Callable[[str], Awaitable[SecretStr | None]]) -> RegistryLogin | None:
    """From the secrets of the run's repository, which `own_use` has by name; None: the machine's own. It says for which
    registry it is when the job does.

    Raises: SecretUnavailable.
    """
    keys = job.registry
    if keys is None:
        return None
    if not may_hold_secrets(run):
        raise SecretUnavailable(NO_SECRETS)
    password = await own_use(keys.password)
    if password is None:
        return None
    return RegistryLogin(username=keys.username, password=password, server=keys.server or "")
