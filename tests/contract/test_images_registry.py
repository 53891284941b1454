"""`ports.bytes.Images` against a real registry."""

from __future__ import annotations

import base64
import json
import shutil

import httpx
import pytest
from pydantic import SecretStr

from gpurun.adapters.images import RegistryImages
from gpurun.domain.errors import PinNotFound, RegistryUnavailable
from gpurun.domain.ids import ImageRef
from gpurun.domain.image import RegistryLogin
from ops.local_services import CACHE, free_port
from tests.services.private_registry import private_registry

pytestmark = pytest.mark.docker

ABSENT = "sha256:" + "0" * 64


async def test_what_was_pushed_is_there_and_nothing_else(base_images, tmp_path):
    image = ImageRef(base_images.busybox)
    async with RegistryImages(tmp_path / "none.json") as images:
        await images.confirm(image)
        with pytest.raises(PinNotFound):
            await images.confirm(ImageRef(f"{image.name}@{ABSENT}"))
        with pytest.raises(PinNotFound):
            await images.confirm(ImageRef(f"{image.name}-other@{image.digest}"))


async def test_a_tag_is_pinned_as_it_was_pushed(base_images, tmp_path):
    image = ImageRef(base_images.busybox)
    async with RegistryImages(tmp_path / "none.json") as images:
        pin = await images.pin(image.name, "latest")
        await images.confirm(ImageRef(f"{image.name}@{pin.digest}"))
        with pytest.raises(PinNotFound, match=f"has no image {image.name}:9.9 "):
            await images.pin(image.name, "9.9")
        with pytest.raises(PinNotFound, match=f"has no (image|repository) .*{image.name.partition('/')[2]}-other"):
            await images.pin(f"{image.name}-other", "latest")
    assert [platform.partition("/")[0] for platform, _ in pin.platforms] == ["linux"]
    assert pin.platforms[0][1] == pin.digest


async def test_an_index_of_several_platforms(base_images, tmp_path):
    image = ImageRef(base_images.busybox)
    async with RegistryImages(tmp_path / "none.json") as images:
        here = (await images.pin(image.name, "latest")).digest
        digest = push_index(image.name, "many", here)
        pin = await images.pin(image.name, "many")
    assert pin.digest == digest
    assert pin.platforms == (("linux/amd64", here), ("linux/arm64/v8", here))


def push_index(name: str, tag: str, digest: str) -> str:
    """An index over one manifest under several names, with an attestation, as BuildKit writes it."""
    size = len(ask("GET", name, digest).content)
    one = {"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "size": size, "digest": digest}
    platforms = [
        {"architecture": "arm64", "os": "linux", "variant": "v8"},
        {"architecture": "amd64", "os": "linux"},
        {"architecture": "unknown", "os": "unknown"},
    ]
    kind = "application/vnd.docker.distribution.manifest.list.v2+json"
    manifests = [one | {"platform": platform} for platform in platforms]
    body = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": manifests}).encode()
    return str(ask("PUT", name, tag, content=body, kind=kind).headers["Docker-Content-Digest"])


def ask(method: str, name: str, reference: str, *, content: bytes = b"", kind: str = "") -> httpx.Response:
    host, _, repository = name.partition("/")
    headers = {"Content-Type": kind} if kind else {"Accept": "application/vnd.docker.distribution.manifest.v2+json"}
    url = f"http://{host}/v2/{repository}/manifests/{reference}"
    return httpx.request(method, url, content=content, headers=headers, timeout=10).raise_for_status()


async def test_nobody_listens(tmp_path):
    nobody = f"127.0.0.1:{free_port()}/x"
    async with RegistryImages(tmp_path / "none.json") as images:
        with pytest.raises(RegistryUnavailable):
            await images.confirm(ImageRef(f"{nobody}@{ABSENT}"))
        with pytest.raises(RegistryUnavailable):
            await images.pin(nobody, "1")


@pytest.fixture
def locked_registry(tmp_path, base_images):
    """A registry with basic auth over a copy of the manifests of the shared one; the user is ci, the word s3cret."""
    base_images.busybox  # noqa: B018 - makes sure that the image is stored
    name = "docker/registry/v2/repositories/gpurun-test/busybox"
    shutil.copytree(CACHE / "registry" / name, tmp_path / "storage" / name)
    digest = base_images.busybox.split(":")[-1]
    blob = f"docker/registry/v2/blobs/sha256/{digest[:2]}/{digest}"
    shutil.copytree(CACHE / "registry" / blob, tmp_path / "storage" / blob)
    with private_registry(tmp_path, "s3cret") as registry:
        yield registry


async def test_a_private_registry_with_and_without_a_login(locked_registry, base_images, tmp_path):
    digest = base_images.busybox.split("@")[1]
    image = ImageRef(f"{locked_registry.address}/gpurun-test/busybox@{digest}")
    async with RegistryImages(tmp_path / "none.json") as anonymous:
        with pytest.raises(PinNotFound, match="without a login"):
            await anonymous.confirm(image)
        with pytest.raises(PinNotFound, match="without a login"):
            await anonymous.pin(image.name, "latest")
    auths = {locked_registry.address: {"auth": base64.b64encode(b"ci:s3cret").decode()}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
    async with RegistryImages(tmp_path / "config.json") as known:
        await known.confirm(image)
        with pytest.raises(PinNotFound, match="has no image"):
            await known.pin(image.name, "9.9")
    async with RegistryImages(tmp_path / "none.json") as images:
        ci = RegistryLogin(username="ci", password=SecretStr("s3cret"))
        await images.confirm(image, login=ci)
        with pytest.raises(PinNotFound, match="has no image"):
            await images.pin(image.name, "9.9", login=ci)
        wrong = RegistryLogin(username="ci", password=SecretStr("another-word"))
        with pytest.raises(PinNotFound, match="or the login of 'ci' may not read it"):
            await images.confirm(image, login=wrong)
        with pytest.raises(PinNotFound, match="without a login"):
            await images.confirm(image)
