"""Providers by entry point. A broken plugin is a status, not a crash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from gpurun.ports.provider import Provider

GROUP = "gpurun.providers"


class ProviderClass(Protocol):
    """What an entry point names: a class with its settings model."""

    name: str
    config_model: type[BaseModel]
    """Frozen, `extra="forbid"`."""

    def __call__(self, config: Any) -> Provider:
        """A provider for one account or host."""
        ...


@dataclass(frozen=True, slots=True)
class Broken:
    """Why a provider cannot be used."""

    name: str
    reason: str


def names() -> tuple[str, ...]:
    """Every provider that is installed, working or not."""
    return tuple(sorted(point.name for point in entry_points(group=GROUP)))


def open_provider(name: str, values: Mapping[str, object]) -> Provider | Broken:
    """The provider called `name`, configured with `values`."""
    found = [point for point in entry_points(group=GROUP) if point.name == name]
    if not found:
        return Broken(name, f"no provider {name!r} is installed; there are: {', '.join(names()) or 'none'}")
    try:
        provider_class: ProviderClass = found[0].load()
        return provider_class(provider_class.config_model(**values))
    except (ImportError, AttributeError) as error:
        return Broken(name, f"{found[0].value} cannot be loaded: {error}")
    except ValidationError as error:
        return Broken(name, f"bad settings: {error.errors(include_input=False, include_url=False)}")
