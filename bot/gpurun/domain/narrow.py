"""What somebody asked of one run beyond its file. It may only narrow what the file and the policy allow."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrow:
    """Nothing of it at first."""

    gpu: str = ""
    """As typed, in the grammar of `resources: {gpu: …}`."""
    provider: str = ""
    max_usd_micro: int | None = None
    """What the run may cost, in micro-USD; None: whatever the file and the policy allow."""
    number: int = 1
    """Of `repeat`: this is the first, the second, …"""
    of: int = 1
    batch: str = ""
    """The same for all runs of one `repeat`; empty without one."""


def asked_alike(one: Narrow, other: Narrow) -> bool:
    """The same arguments, whichever of a `repeat` they are."""
    return replace(one, number=1, batch="") == replace(other, number=1, batch="")


def numbered(name: str, narrow: Narrow) -> str:
    """How people tell the runs of one `repeat` apart: `smoke (2 of 3)`."""
    return f"{name} ({narrow.number} of {narrow.of})" if narrow.of > 1 else name
