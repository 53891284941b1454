"""Layers of `setup`: what it did in one container, for another one of the same plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWish:
    """Which layer would do."""

    repo: str
    key: str
    """SHA-256 of everything that `setup` depends on (`plan.layer`)."""
    read: Sequence[str]
    """Scopes, the first choice first."""
    write: str
    """The scope that gets what this run makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What the agent recorded before `run` began."""

    sha256: str
    size: int
    setup_ms: int
    """What `setup` took."""
    day: str
    """On which it was made, `2026-12-01`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerUse:
    """The volume of one attempt."""

    volume: str
    shelf: str
    """Whose records know it; a label of the volume."""
    layer: Layer | None = None
    """What is in it, to be mounted read-only; None: it is new, and a layer may be made there."""
    most_bytes: int = 0
    """Of the one that is made."""
