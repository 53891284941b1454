"""Image registries."""

from gpurun.adapters.images.nearest import NearestImages, SilentImages
from gpurun.adapters.images.registry import RegistryImages

__all__ = ["NearestImages", "RegistryImages", "SilentImages"]
