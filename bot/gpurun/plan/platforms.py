"""Whether an image is for the machines that would run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpurun.domain.errors import WrongPlatform
from gpurun.domain.ids import ImageRef
from gpurun.domain.platform import runs_one_of

MAX_SHOWN = 6


def require_a_machine(image: ImageRef, platforms: Sequence[str], machines: Mapping[str, str]) -> tuple[str, ...]:
    """The providers whose machines do not run the image; `machines`: platforms by provider, empty when not known.

    Raises: WrongPlatform when none of them does.
    """
    wrong = {name: own for name, own in machines.items() if platforms and own and not runs_one_of(own, platforms)}
    if machines and len(wrong) == len(machines):
        wanted = _and(sorted(set(wrong.values())))
        where = _and([f"{name} runs {own}" for name, own in wrong.items()])
        raise WrongPlatform(
            f"The image {image.name} is for {_and(platforms)}, and {where}: it would not start there.",
            hint=f"Build it for {wanted} too, or name another image.",
        )
    return tuple(wrong)


def platforms_note(image: ImageRef, platforms: Sequence[str]) -> str:
    """What to tell when nothing could be compared; empty when it could."""
    if platforms:
        return ""
    return f"Nobody says which platform {image.name} is for, so nothing was compared with the machine before the start."


def _and(names: Sequence[str]) -> str:
    shown = [*names[:MAX_SHOWN], *([f"{len(names) - MAX_SHOWN} more"] if len(names) > MAX_SHOWN else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
