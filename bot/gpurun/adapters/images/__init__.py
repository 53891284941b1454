"""Image registries."""

from gpurun.adapters.images.nearest import NearestImages
from gpurun.adapters.images.registry import RegistryImages

__all__ = ["NearestImages", "RegistryImages"]
