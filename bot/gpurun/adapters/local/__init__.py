"""A checkout on this machine: the forge of `gpurun run`."""

from gpurun.adapters.local.checkout import LocalState
from gpurun.adapters.local.forge import LocalForge

__all__ = ["LocalForge", "LocalState"]
