"""A whole small world: GitHub, a hub, a registry, a Docker Engine, and the bot as a process of its own.

    async with open_world(folder, image=base_images.python) as world:
        world.jobs(smoke={"run": "echo hi"})
        world.comment("/gpurun smoke")
        await world.expect_check("gpurun / smoke", "success")
        assert "passed" in await world.expect_comment("passed")

Leaving the block fails on a comment that nobody read, a container that is left, work that is not done, and a secret
in anything that was written anywhere. `laws.assert_laws(world)` looks at everything that must hold after every fault.
"""

from tests.world.bot import BotProcess
from tests.world.world import World, open_world

__all__ = ["BotProcess", "World", "open_world"]
