"""Pulls that go wrong in a registry's own ways, through the real engine: what is tried again and what is refused."""

from __future__ import annotations

import contextlib

import pytest
from docker.errors import ImageNotFound

from gpurun.domain.errors import ProviderRefused, ProviderUnavailable
from gpurun.providers.docker.ready_image import ready_name
from tests.docker.sick_registry import sick_registry

pytestmark = pytest.mark.docker


@pytest.fixture
def bench(docker_bench):
    return docker_bench


@pytest.fixture
def sick(bench):
    """A registry that can be made sick. What was pulled from it is removed again."""
    with sick_registry() as registry:
        yield registry
    with contextlib.suppress(ImageNotFound):
        bench.engine.remove_image(registry.image, force=True)


async def test_a_layer_that_is_cut_off_is_fetched_again(bench, launches, sick):
    """By the engine, five seconds later: the job does not notice."""
    sick.cut_layers = 1
    ready = await bench.provider.prepare(launches(sick.image, "true"), wait_s=60)
    assert ready.ready
    assert sick.cut_layers == 0


@pytest.mark.parametrize("what", ["refuse_manifests", "refuse_blobs"])
async def test_a_registry_that_asks_to_slow_down_says_nothing_about_the_job(bench, launches, sick, what):
    """Docker Hub's words, in the middle of a pull or before it."""
    setattr(sick, what, (429, "TOOMANYREQUESTS", "You have reached your pull rate limit."))
    with pytest.raises(ProviderUnavailable, match="toomanyrequests: You have reached your pull rate limit"):
        await bench.provider.prepare(launches(sick.image, "true"), wait_s=60)
    setattr(sick, what, None)
    assert (await bench.provider.prepare(launches(sick.image, "true"), wait_s=60)).ready  # the next try starts anew


@pytest.mark.parametrize(
    ("trouble", "kind", "words"),
    [
        ((404, "MANIFEST_UNKNOWN", "manifest unknown"), "invalid", "manifest unknown"),
        ((401, "UNAUTHORIZED", "authentication required"), "auth", "unauthorized"),
        ((403, "DENIED", "requested access to the resource is denied"), "auth", "denied"),
    ],
)
async def test_an_image_that_nobody_will_get_is_refused(bench, launches, sick, trouble, kind, words):
    sick.refuse_manifests = trouble
    with pytest.raises(ProviderRefused, match=words) as caught:
        await bench.provider.prepare(launches(sick.image, "true"), wait_s=60)
    assert caught.value.kind == kind
    assert sick.image in str(caught.value)


async def test_an_image_that_goes_between_prepare_and_create_is_made_ready_again_or_refused(
    bench, launches, base_images
):
    launch = launches(base_images.pulled, f"echo hi  # {id(bench)}")
    assert (await bench.provider.prepare(launch, wait_s=60)).ready
    bench.engine.remove_image(ready_name(launch), force=True)
    ref = await bench.provider.create(launch)  # the image itself is there
    bench.engine.wait(ref)
    assert await bench.provider.logs(ref, max_bytes=100) == b"hi\n"
    await bench.provider.destroy(ref)
    bench.engine.remove_image(ready_name(launch), force=True)
    for one in bench.engine.images(name=base_images.pulled.split("@")[0]):
        bench.engine.remove_image(one["Id"], force=True)
    with pytest.raises(ProviderRefused, match="is not on the Docker Engine any more") as caught:
        await bench.provider.create(launch)
    assert caught.value.kind == "capacity"  # another try pulls it again
    assert await bench.provider.list_owned(launch.name) == ()
