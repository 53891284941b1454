"""`ports.layers.Layers` on the disk of this machine."""

from gpurun.adapters.layers.files import FileLayers
from gpurun.adapters.layers.shelf import ClearedLayers, KeptLayer, LayerShelf

__all__ = ["ClearedLayers", "FileLayers", "KeptLayer", "LayerShelf"]
