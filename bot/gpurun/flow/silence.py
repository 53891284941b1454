"""What is said of a pin for which nobody answered, so that it was taken from what was verified here before.

Whoever answers decides, also with a no or a "not now": access is asked for whenever the network is there.
"""

from __future__ import annotations

from gpurun.domain.errors import RegistrySilent
from gpurun.domain.ids import ImageRef
from gpurun.domain.image import SeenImage
from gpurun.domain.run import Run
from gpurun.flow.services import EngineServices
from gpurun.ports.bytes import SaidBefore
from gpurun.ports.store import Tx


def recalled_notes(said: SaidBefore) -> tuple[str, ...]:
    """Nothing when the hub was asked."""
    if not said.on:
        return ()
    return (f"The hub is silent and was not asked for {said.pin.id}: its files are those that it named on {said.on}.",)


async def kept_notes(services: EngineServices, run: Run, image: ImageRef, seen: SeenImage) -> tuple[str, ...]:
    """Nothing when the registry was asked. Raises RegistrySilent when it never confirmed the image for that commit."""
    if not seen.kept_by:
        return ()
    day = await services.store.read(lambda tx: _confirmed_on(tx, run, image))
    if not day:
        raise RegistrySilent(f"The registry of {image.name} does not answer.")
    said = f"The registry of {image.name} is silent and was not asked"
    return (f"{said}: it confirmed the image on {day}, and {seen.kept_by} has it by its digest.",)


def _confirmed_on(tx: Tx, run: Run, image: ImageRef) -> str:
    """The day on which the registry last did, for this repository and commit; empty when it never did.

    What another repository may pull says nothing of this one.
    """
    of_commit = tx.runs_of_commit(run.repo.name, run.sha)
    runs = (one for one in of_commit if one.plan is not None and image in one.plan.pulled_images)
    return max((one.created_at.date().isoformat() for one in runs if not one.pins.notes), default="")
