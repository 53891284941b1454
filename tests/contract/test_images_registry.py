"""`ports.bytes.Images` against a real registry."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess

import pytest

from gpurun.adapters.images import RegistryImages
from gpurun.domain.errors import PinNotFound, RegistryUnavailable
from gpurun.domain.ids import ImageRef
from ops.local_services import CACHE, Missing, Registry, free_port
from tests.services.engine import missing

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


async def test_nobody_listens(tmp_path):
    async with RegistryImages(tmp_path / "none.json") as images:
        with pytest.raises(RegistryUnavailable):
            await images.confirm(ImageRef(f"127.0.0.1:{free_port()}/x@{ABSENT}"))


@pytest.fixture
def private_registry(tmp_path, base_images):
    """A registry with basic auth over a copy of the manifests of the shared one; the user is ci, the word s3cret."""
    if shutil.which("htpasswd") is None:
        missing("htpasswd is not installed: `make setup` as root installs it (apache2-utils)")
    users = subprocess.run(["htpasswd", "-Bbn", "ci", "s3cret"], capture_output=True, check=True, timeout=10).stdout
    (tmp_path / "htpasswd").write_bytes(users)
    base_images.busybox  # noqa: B018 - makes sure that the image is stored
    name = "docker/registry/v2/repositories/gpurun-test/busybox"
    shutil.copytree(CACHE / "registry" / name, tmp_path / "storage" / name)
    digest = base_images.busybox.split(":")[-1]
    blob = f"docker/registry/v2/blobs/sha256/{digest[:2]}/{digest}"
    shutil.copytree(CACHE / "registry" / blob, tmp_path / "storage" / blob)
    registry = Registry(tmp_path / "storage", free_port(), htpasswd=tmp_path / "htpasswd")
    try:
        registry.start()
    except Missing as exc:
        missing(str(exc))
    yield registry
    registry.stop()


async def test_a_private_registry_with_and_without_a_login(private_registry, base_images, tmp_path):
    digest = base_images.busybox.split("@")[1]
    image = ImageRef(f"{private_registry.address}/gpurun-test/busybox@{digest}")
    async with RegistryImages(tmp_path / "none.json") as anonymous:
        with pytest.raises(PinNotFound, match="without a login"):
            await anonymous.confirm(image)
    auths = {private_registry.address: {"auth": base64.b64encode(b"ci:s3cret").decode()}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
    async with RegistryImages(tmp_path / "config.json") as known:
        await known.confirm(image)
