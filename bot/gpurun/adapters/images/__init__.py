"""Image registries."""

from gpurun.adapters.images.registry import RegistryImages

__all__ = ["RegistryImages"]
