"""Each public registry's own way to a token, with and without a login."""

from __future__ import annotations

import base64
import json

import pytest
from pydantic import SecretStr

from gpurun.adapters.images import RegistryImages
from gpurun.domain.errors import PinNotFound, RegistryUnavailable
from gpurun.domain.ids import ImageRef, ImageTag
from gpurun.domain.image import RegistryLogin
from gpurun.domain.lock import ImagePin, LockedImage
from tests.fakes.registries import DockerHub, Ghcr, Ngc, OldNgc, PublicRegistry, Quay

LOGIN = RegistryLogin(username="$oauthtoken", password=SecretStr("s3cret-token"))
WRONG = RegistryLogin(username="$oauthtoken", password=SecretStr("expired-token"))
STRANGER = RegistryLogin(username="stranger", password=SecretStr("s3cret-token"))

REGISTRIES = [(DockerHub, "docker.io"), (Ghcr, "ghcr.io"), (Ngc, "nvcr.io"), (OldNgc, "nvcr.io"), (Quay, "quay.io")]


@pytest.fixture(params=REGISTRIES, ids=lambda param: param[0].__name__)
def registry(request) -> tuple[PublicRegistry, str]:
    """With a public and a private repository; and what its names begin with."""
    kind, prefix = request.param
    registry = kind()
    registry.users = {"$oauthtoken": "s3cret-token", "stranger": "s3cret-token"}
    registry.readers["org/private"] = {"$oauthtoken"}
    return registry, prefix


@pytest.fixture
async def images(registry, tmp_path):
    async with RegistryImages(tmp_path / "config.json", transport=registry[0].transport()) as opened:
        yield opened


async def test_a_public_image_needs_no_login(registry, images):
    served, prefix = registry
    digest = served.put("org/public", "1.2", public=True)
    pin = await images.pin(f"{prefix}/org/public", "1.2")
    assert (pin.digest, pin.platforms) == (digest, (("linux/amd64", digest),))
    await images.confirm(ImageRef(f"{prefix}/org/public:1.2@{digest}"))


async def test_a_private_image_needs_one(registry, images):
    served, prefix = registry
    image = ImageRef(f"{prefix}/org/private@{served.put('org/private', '1', public=False)}")
    with pytest.raises(PinNotFound, match="or does not show it without a login"):
        await images.confirm(image)
    await images.confirm(image, login=LOGIN)
    assert (await images.pin(f"{prefix}/org/private", "1", login=LOGIN)).digest == image.digest


async def test_a_login_is_not_kept_for_whoever_asks_next(registry, images):
    served, prefix = registry
    image = ImageRef(f"{prefix}/org/private@{served.put('org/private', '1', public=False)}")
    await images.confirm(image, login=LOGIN)
    with pytest.raises(PinNotFound, match="or does not show it without a login"):
        await images.confirm(image)
    with pytest.raises(PinNotFound, match="or the login of 'stranger' may not read it"):
        await images.confirm(image, login=STRANGER)


async def test_a_login_that_is_refused_says_so_and_is_not_shown(registry, images):
    served, prefix = registry
    image = ImageRef(f"{prefix}/org/private@{served.put('org/private', '1', public=False)}")
    with pytest.raises(PinNotFound, match=r"does not know the login of '\$oauthtoken'") as caught:
        await images.confirm(image, login=WRONG)
    assert "expired-token" not in f"{caught.value} {caught.value.hint} {WRONG}"


async def test_a_login_of_the_machine_is_used_when_none_is_given(registry, images, tmp_path):
    served, prefix = registry
    image = ImageRef(f"{prefix}/org/private@{served.put('org/private', '1', public=False)}")
    auth = base64.b64encode(b"$oauthtoken:s3cret-token").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {prefix: {"auth": auth}}}))
    await images.confirm(image)
    with pytest.raises(PinNotFound, match="stranger"):
        await images.confirm(image, login=STRANGER)


async def test_what_is_not_there(registry, images):
    served, prefix = registry
    served.put("org/public", "1.2", public=True)
    with pytest.raises(PinNotFound, match=rf"has no image {prefix}/org/public:9 \(it answered 404\)"):
        await images.pin(f"{prefix}/org/public", "9")
    with pytest.raises(PinNotFound, match=r"has no image .*, or does not show it without a login"):
        await images.pin(f"{prefix}/org/nothing", "9")


async def test_names_of_docker_hub_are_short(tmp_path):
    hub = DockerHub()
    digest = hub.put("library/python", "3.12", public=True)
    async with RegistryImages(tmp_path / "config.json", transport=hub.transport()) as images:
        for name in ("python", "docker.io/python", "docker.io/library/python", "index.docker.io/python"):
            assert (await images.pin(name, "3.12")).digest == digest


async def test_b072_a_limit_of_docker_hub_is_no_fault_of_the_image(tmp_path):
    hub = DockerHub()
    digest = hub.put("library/python", "3.12", public=True)
    hub.limited = True
    async with RegistryImages(tmp_path / "config.json", transport=hub.transport()) as images:
        with pytest.raises(RegistryUnavailable, match="429"):
            await images.confirm(ImageRef(f"python:3.12@{digest}"))


async def test_a_digest_that_is_locked_costs_no_pull_of_docker_hub(tmp_path):
    hub = DockerHub()
    digest = hub.put("library/python", "3.12", public=True)
    async with RegistryImages(tmp_path / "config.json", transport=hub.transport()) as images:
        image = ImageTag("python:3.12")
        pin = ImagePin(digest=digest, platforms=(("linux/amd64", digest),))
        locked = LockedImage(ref=image, pin=pin, locked_on="2026-12-01")
        await images.confirm(locked.image, locked=locked)
    manifest = f"HEAD registry-1.docker.io/v2/library/python/manifests/{digest}"
    tag = "HEAD registry-1.docker.io/v2/library/python/manifests/3.12"
    assert hub.requests == [manifest, "GET auth.docker.io/token", manifest, tag]
