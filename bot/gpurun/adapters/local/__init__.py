"""A checkout on this machine: the forge of `gpurun run`."""
