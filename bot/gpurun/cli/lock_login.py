"""The login with which `gpurun lock` asks for an image."""

from __future__ import annotations

from gpurun.cli.envfile import given_secrets
from gpurun.cli.lock import Place
from gpurun.cli.the_file import top_above
from gpurun.domain.ids import ImageTag
from gpurun.domain.image import RegistryLogin
from gpurun.domain.repository import DOTENV


def login_for(place: Place, image: ImageTag) -> RegistryLogin | None:
    """That of the first job with this image whose password is in `.env` at the top; None: Docker's own login.

    Raises: UserError, SecretRefused for a file that cannot be used.
    """
    for name, job in place.config.jobs.items():
        if job.image != image or job.registry is None:
            continue
        file = top_above(place.file.resolve().parent) / DOTENV
        password = job.registry.password
        given = given_secrets(name, (), file, must_exist=False, optional=(password,))
        if password in given.values:
            return RegistryLogin(username=job.registry.username, password=given.values[password])
    return None
