"""Two `gpurun serve` on one PostgreSQL: what one began, the other one finishes."""

from __future__ import annotations

import anyio
import pytest

from tests.world import open_world
from tests.world.rows import leased

pytestmark = [pytest.mark.docker, pytest.mark.postgres]


async def test_a_process_that_dies_for_good_is_replaced(tmp_path, base_images, postgres_url):
    """The second one takes over the rows, and the socket through which the agent speaks."""
    async with open_world(tmp_path, image=base_images.python, database_url=postgres_url) as world:
        run = "echo before; while [ ! -e go ]; do sleep 0.05; done; for i in $(seq 200); do echo line $i; done"
        world.jobs(smoke={"run": run})
        world.comment("/gpurun smoke")
        container = await world.expect_container()
        await world.expect_comment("running")
        twin = world.bot.twin()
        await twin.start()
        try:
            with anyio.fail_after(20):
                while leased(postgres_url):  # a row in the middle of a step would wait for the end of its lease, 75 s
                    await anyio.sleep(0.01)
            world.bot.kill()
            world.in_container(container, "touch", "/gpurun/work/go")
            await world.expect_check("gpurun / smoke", "success")
            body = await world.expect_comment("✅ passed")
            await world.expect_no_container()
        finally:
            assert await twin.stop() == 0
        assert "line 200" in body
        assert len(world.bot_comments()) == 1
