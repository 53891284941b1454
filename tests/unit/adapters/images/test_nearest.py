from __future__ import annotations

import pytest

from gpurun.adapters.images import NearestImages
from gpurun.domain.errors import PinNotFound, ProviderRefused, ProviderUnavailable
from gpurun.domain.ids import ImageRef
from gpurun.domain.image import SeenImage
from gpurun.domain.lock import ImagePin

IMAGE = ImageRef(f"ghcr.io/org/app@sha256:{'1' * 64}")


class Registry:
    """Has nothing, and counts."""

    asked = 0

    async def confirm(self, image, *, locked=None, login=None):
        self.asked += 1
        raise PinNotFound(f"no {image}")

    async def pin(self, name, tag, *, login=None):
        self.asked += 1
        return ImagePin(digest=f"{name}:{tag}")


class Keeper:
    """A provider that answers one question."""

    def __init__(self, answer):
        self.answer = answer

    async def platform_of(self, image):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(("platform", "platforms"), [("linux/arm64", ("linux/arm64",)), ("", ())])
async def test_an_image_that_a_provider_has_is_confirmed_without_its_registry(platform, platforms):
    registry = Registry()
    seen = await NearestImages(registry, [Keeper(None), Keeper(platform)]).confirm(IMAGE)
    assert seen == SeenImage(platforms=platforms)
    assert registry.asked == 0


@pytest.mark.parametrize(
    "provider",
    [object(), Keeper(None), Keeper(ProviderUnavailable("down")), Keeper(ProviderRefused("no", kind="auth"))],
    ids=["keeps none", "has it not", "down", "refuses"],
)
async def test_otherwise_the_registry_is_asked(provider):
    registry = Registry()
    with pytest.raises(PinNotFound):
        await NearestImages(registry, [provider]).confirm(IMAGE)
    assert registry.asked == 1


async def test_where_a_tag_points_only_its_registry_knows():
    registry = Registry()
    assert (
        await NearestImages(registry, [Keeper("linux/amd64")]).pin("ghcr.io/org/app", "1")
    ).digest == "ghcr.io/org/app:1"
    assert registry.asked == 1
