"""An image that is here already need not be asked for at its registry."""

from __future__ import annotations

from collections.abc import Iterable

from gpurun.domain.errors import ProviderRefused, ProviderUnavailable, RegistrySilent
from gpurun.domain.ids import ImageRef
from gpurun.domain.image import RegistryLogin, SeenImage
from gpurun.domain.lock import ImagePin, LockedImage
from gpurun.ports.bytes import Images
from gpurun.ports.provider import HasImages, Provider


class NearestImages:
    """`ports.bytes.Images`: first the providers that keep images, then the registry.

    A digest names its content, so a copy that a provider has by that digest is the image. It saves some round trips,
    with a login among them, and lets a job run whose registry cannot be reached.
    """

    def __init__(self, registry: Images, providers: Iterable[Provider]) -> None:
        self._registry = registry
        self._keepers = tuple(provider for provider in providers if isinstance(provider, HasImages))

    async def confirm(
        self, image: ImageRef, *, locked: LockedImage | None = None, login: RegistryLogin | None = None
    ) -> SeenImage:
        for keeper in self._keepers:
            platform = await _platform(keeper, image)
            if platform is not None:
                return SeenImage(platforms=(platform,) if platform else ())
        return await self._registry.confirm(image, locked=locked, login=login)

    async def pin(self, name: str, tag: str, *, login: RegistryLogin | None = None) -> ImagePin:
        # a tag that a provider keeps may have moved since
        return await self._registry.pin(name, tag, login=login)


class SilentImages:
    """`ports.bytes.Images`: the registry, and when nobody answers there the providers that keep images."""

    def __init__(self, registry: Images, providers: Iterable[Provider]) -> None:
        self._registry = registry
        self._providers = tuple(providers)

    async def confirm(
        self, image: ImageRef, *, locked: LockedImage | None = None, login: RegistryLogin | None = None
    ) -> SeenImage:
        """Whether who asks may have what is only kept is for the caller to know."""
        try:
            return await self._registry.confirm(image, locked=locked, login=login)
        except RegistrySilent:
            for provider in self._providers:
                platform = await _platform(provider, image) if isinstance(provider, HasImages) else None
                if platform is not None:
                    return SeenImage(platforms=(platform,) if platform else (), kept_by=provider.name)
            raise

    async def pin(self, name: str, tag: str, *, login: RegistryLogin | None = None) -> ImagePin:
        return await self._registry.pin(name, tag, login=login)


async def _platform(keeper: HasImages, image: ImageRef) -> str | None:
    try:
        return await keeper.platform_of(image)
    except (ProviderRefused, ProviderUnavailable):
        return None  # the registry knows better
