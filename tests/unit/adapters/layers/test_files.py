"""Records of layers beside the event loop."""

from __future__ import annotations

import fcntl

import anyio

from gpurun.adapters.layers import FileLayers, LayerShelf


async def test_who_waits_for_records_that_are_in_use_can_give_up(tmp_path, clock):
    """Another process has them: a call that is cut must not wait for its thread."""
    layers = FileLayers(LayerShelf(tmp_path), clock)
    known = await layers.shelf()
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with anyio.move_on_after(0.05) as waiting:
            await layers.shelf()
    assert waiting.cancelled_caught
    assert await layers.shelf() == known
