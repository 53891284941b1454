"""What a pin may be taken from when nobody answers: what was verified here before, by content, and said so.

Whoever answers decides, also with a no or a "not now": access is asked for whenever the network is there.
"""

from __future__ import annotations

from gpurun.domain.errors import HubSilent, Refused, RegistrySilent, Transient
from gpurun.domain.ids import ImageRef
from gpurun.domain.plan import ModelPin, ModelSpec
from gpurun.flow.services import EngineServices
from gpurun.ports.provider import HasImages, Provider

Notes = tuple[str, ...]


async def resolve_model(services: EngineServices, spec: ModelSpec) -> tuple[ModelPin, Notes]:
    """Raises what `ports.bytes.Hub.resolve` raises."""
    try:
        return await services.hub.resolve(spec), ()
    except HubSilent:
        before = await services.hub.resolved_before(spec)
        if before is None:
            raise
        note = f"The hub is silent and was not asked for {spec.id}: its files are those that it named on {before.on}."
        return before.pin, (note,)


async def confirm_image(services: EngineServices, image: ImageRef) -> Notes:
    """Raises what `ports.bytes.Images.confirm` raises."""
    try:
        await services.images.confirm(image)
    except RegistrySilent:
        for provider in services.providers.values():
            if await _has(provider, image):
                said = f"The registry of {image.name} is silent and was not asked"
                return (f"{said}: {provider.name} has the image by its digest.",)
        raise
    return ()


async def _has(provider: Provider, image: ImageRef) -> bool:
    try:
        return isinstance(provider, HasImages) and await provider.has_image(image)
    except (Refused, Transient):
        return False
