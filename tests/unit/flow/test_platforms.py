"""An image for other machines is refused before anything is made."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gpurun.domain.errors import ProviderUnavailable
from gpurun.domain.run import Verdict
from gpurun.report.comment import render_comment
from gpurun.report.facts import RunFacts
from tests.fakes.cloud import FakeCloud
from tests.fakes.rows import IMAGE
from tests.fakes.world import World


@dataclass
class Machines(FakeCloud):
    """Says what they are."""

    says: str | Exception = "linux/amd64"

    async def platform(self) -> str:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@pytest.fixture
def store_url(tmp_path):
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
def world(store, clock, chance):
    made = World(store, clock, chance)
    made.use(Machines(clock))
    return made


async def ran(world: World) -> None:
    await world.start()
    await world.run_for(seconds=30)


async def test_an_image_for_another_architecture_names_both(world):
    world.images.platforms = ("linux/arm64", "linux/arm/v7")
    await ran(world)
    run = await world.expect(Verdict.REFUSED, "platform")
    assert run.detail == (
        f"The image {IMAGE.name} is for linux/arm64 and linux/arm/v7, and fake runs linux/amd64: it would not start "
        "there. Build it for linux/amd64 too, or name another image."
    )
    assert not world.cloud.book
    assert "Correct the file" in render_comment(RunFacts(run=run, now=world.clock.now()))


async def test_one_of_several_platforms_is_enough(world):
    world.images.platforms = ("linux/amd64", "linux/arm64")
    await ran(world)
    run = await world.expect(Verdict.PASSED)
    assert run.notes == ()


async def test_an_image_of_which_nobody_says_it_runs_with_a_note(world):
    world.images.platforms = ()
    await ran(world)
    run = await world.expect(Verdict.PASSED)
    assert run.notes == (
        f"Nobody says which platform {IMAGE.name} is for, so nothing was compared with the machine before the start.",
    )


@pytest.mark.parametrize("says", ["", ProviderUnavailable("down")], ids=["by offer", "down"])
async def test_machines_that_do_not_say_are_no_reason(world, says):
    world.images.platforms = ("linux/arm64",)
    world.cloud.says = says
    await ran(world)
    await world.expect(Verdict.PASSED)


async def test_it_goes_where_it_runs(world):
    """The cheaper one would be chosen otherwise."""
    world.images.platforms = ("linux/amd64",)
    world.add(Machines(world.clock, name="arms", says="linux/arm64", usd_per_hour_micro=1))
    world.slots["arms"] = 4
    await ran(world)
    run = await world.expect(Verdict.PASSED)
    assert run.pins.not_on == ("arms",)
    assert not world.more["arms"].book
