"""A private image through the real engine and a real registry with passwords."""

from __future__ import annotations

import contextlib
import secrets

import pytest
from docker.errors import APIError
from pydantic import SecretStr

from gpurun.domain.errors import ProviderRefused
from gpurun.domain.image import RegistryLogin
from gpurun.providers.docker.ready_image import ready_name
from tests.services.private_registry import private_registry

pytestmark = [pytest.mark.docker, pytest.mark.timeout(180)]

WORD = secrets.token_hex(8)


@pytest.fixture
def private_image(tmp_path, engine, base_images):
    """By digest, not on the engine any more."""
    with private_registry(tmp_path, WORD) as registry:
        name = f"{registry.address}/team/private"
        engine.tag(base_images.busybox, name, "1")
        pushed = engine.push(name, tag="1", auth_config={"username": "ci", "password": WORD}, stream=True, decode=True)
        (digest,) = [event["aux"]["Digest"] for event in pushed if "aux" in event]
        for one in (f"{name}:1", f"{name}@{digest}"):
            with contextlib.suppress(APIError):
                engine.remove_image(one)
        yield f"{name}@{digest}"
        with contextlib.suppress(APIError):
            engine.remove_image(f"{name}@{digest}")


async def test_a_login_that_is_given_pulls_it_and_no_other_does(docker_bench, launches, private_image, monkeypatch):
    async def pulls(login: RegistryLogin | None) -> bool:
        launch = launches(private_image, "true", login=login)
        return (await docker_bench.provider.prepare(launch, wait_s=60)).ready

    for login in (None, RegistryLogin(username="ci", password=SecretStr("another-word"))):
        with pytest.raises(ProviderRefused) as caught:
            await pulls(login)
        assert caught.value.kind == "auth"
        assert "another-word" not in str(caught.value)
    assert await pulls(RegistryLogin(username="ci", password=SecretStr(WORD)))
    found = docker_bench.engine.inspect_image(ready_name(launches.made[-1]))
    assert WORD not in str(found)
