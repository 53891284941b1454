"""One file each, found by entry point `gpurun.providers`."""
