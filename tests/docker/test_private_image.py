"""A private image through the real engine and a real registry with passwords."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import subprocess

import pytest
from docker.errors import APIError
from pydantic import SecretStr

from gpurun.domain.errors import ProviderRefused
from gpurun.domain.image import RegistryLogin
from gpurun.providers.docker.ready_image import ready_name
from ops.local_services import Missing, Registry, free_port
from tests.services.engine import missing

pytestmark = [pytest.mark.docker, pytest.mark.timeout(180)]

WORD = secrets.token_hex(8)


@pytest.fixture
def private_image(tmp_path, engine, base_images):
    """By digest, not on the engine any more."""
    if shutil.which("htpasswd") is None:
        missing("htpasswd is not installed: `make setup` as root installs it (apache2-utils)")
    users = subprocess.run(["htpasswd", "-Bbn", "ci", WORD], capture_output=True, check=True, timeout=10).stdout
    (tmp_path / "htpasswd").write_bytes(users)
    registry = Registry(tmp_path / "storage", free_port(), htpasswd=tmp_path / "htpasswd")
    try:
        registry.start()
    except Missing as exc:
        missing(str(exc))
    name = f"{registry.address}/team/private"
    try:
        engine.tag(base_images.busybox, name, "1")
        pushed = engine.push(name, tag="1", auth_config={"username": "ci", "password": WORD}, stream=True, decode=True)
        (digest,) = [event["aux"]["Digest"] for event in pushed if "aux" in event]
        for one in (f"{name}:1", f"{name}@{digest}"):
            with contextlib.suppress(APIError):
                engine.remove_image(one)
        yield f"{name}@{digest}"
        with contextlib.suppress(APIError):
            engine.remove_image(f"{name}@{digest}")
    finally:
        registry.stop()


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
