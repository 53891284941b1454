"""What a pin may be taken from when nobody answers: what was verified here before, by content, and said so.

Whoever answers decides, also with a no or a "not now": access is asked for whenever the network is there.
"""

from __future__ import annotations

from gpurun.domain.errors import HubSilent, Refused, RegistrySilent, Transient
from gpurun.domain.ids import ImageRef
from gpurun.domain.image import RegistryLogin, SeenImage
from gpurun.domain.plan import ModelPin, ModelSpec
from gpurun.domain.run import Run
from gpurun.flow.services import EngineServices
from gpurun.plan.resolve import ConfirmImage
from gpurun.ports.provider import HasImages, Provider
from gpurun.ports.store import Tx

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


async def confirm_image(
    services: EngineServices, run: Run, pin: ConfirmImage, login: RegistryLogin | None
) -> tuple[SeenImage, Notes]:
    """Raises what `ports.bytes.Images.confirm` raises."""
    image = pin.image
    try:
        return await services.images.confirm(image, locked=pin.locked, login=login), ()
    except RegistrySilent:
        day = await services.store.read(lambda tx: _confirmed_on(tx, run, image))
        for provider in services.providers.values() if day else ():
            platform = await _platform(provider, image)
            if platform is not None:
                said = f"The registry of {image.name} is silent and was not asked"
                note = f"{said}: it confirmed the image on {day}, and {provider.name} has it by its digest."
                return SeenImage(platforms=(platform,) if platform else ()), (note,)
        raise


def _confirmed_on(tx: Tx, run: Run, image: ImageRef) -> str:
    """The day on which the registry last did, for this repository and commit; empty when it never did.

    What another repository may pull says nothing of this one.
    """
    runs = (one for one in tx.runs_of_commit(run.repo.name, run.sha) if one.plan and one.plan.image == image)
    return max((one.created_at.date().isoformat() for one in runs if not one.pins.notes), default="")


async def _platform(provider: Provider, image: ImageRef) -> str | None:
    """None when it does not have it."""
    try:
        return await provider.platform_of(image) if isinstance(provider, HasImages) else None
    except (Refused, Transient):
        return None
