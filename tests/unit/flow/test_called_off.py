"""A run that is called off in the middle of a preparing call leaves nothing in use."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gpurun.domain.build import Building, BuildOutput
from gpurun.domain.ids import ImageRef
from gpurun.domain.run import Verdict
from tests.fakes.cloud import BuildingCloud, KeepingCloud, MountingCloud
from tests.fakes.rows import SHA
from tests.fakes.world import World
from tests.unit.flow import test_builds, test_setup_layer
from tests.unit.flow.test_weights import FILES, REVISION, WITH_MODEL


@dataclass
class Cloud(MountingCloud, BuildingCloud, KeepingCloud):
    """It has all that can be prepared."""

    pulls: int = 0
    answers: list[Building | Exception] = field(
        default_factory=lambda: [Building(ready=True, output=BuildOutput(id="1", said=b"said\n", took_s=2.0))]
    )


@pytest.fixture
def store_url(tmp_path):
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
def world(store, clock, chance):
    world = World(store, clock, chance)
    world.use(Cloud(clock))
    world.hub.models = {("org/a", REVISION): FILES}
    world.git.archives = {SHA: test_builds.commit()}
    world.images.known.add(ImageRef(test_builds.BASE))
    return world


def then_cancelled(world: World, monkeypatch: pytest.MonkeyPatch, of: object, call: str) -> list[str]:
    """Somebody cancels while the answer to `call` is on its way. The calls that were made so."""
    plain, made = getattr(of, call), []

    async def called(*args, **kwargs):
        answer = await plain(*args, **kwargs)
        made.append(call)
        await world.cancel()
        return answer

    monkeypatch.setattr(of, call, called)
    return made


async def cancelled(world: World) -> None:
    run = await world.expect(Verdict.CANCELLED, "asked")
    assert (run.attempts, world.cloud.book) == (1, [])
    assert (world.hub.uses, world.layers.uses, world.uplinks.open_now) == ({}, {}, set())


@pytest.mark.parametrize("missing", [[1000, 570, 0], []])
async def test_weights(world, monkeypatch, missing):
    world.hub.missing_bytes = list(missing)
    made = then_cancelled(world, monkeypatch, world.hub, "lay_out")
    await world.start(config_text=WITH_MODEL)
    await world.run_until_over()
    assert made
    await cancelled(world)


async def test_an_image(world, monkeypatch):
    world.cloud.pulls = 3
    made = then_cancelled(world, monkeypatch, world.cloud, "prepare")
    await world.start()
    await world.run_until_over()
    assert made
    await cancelled(world)


async def test_a_build(world, monkeypatch):
    world.cloud.answers = [test_builds.going_on("a\n")]
    made = then_cancelled(world, monkeypatch, world.cloud, "build")
    await world.start(config_text=test_builds.CONFIG)
    await world.run_until_over()
    assert made
    await cancelled(world)


async def test_the_volume_of_setup(world, monkeypatch):
    made = then_cancelled(world, monkeypatch, world.layers, "use")
    await world.start(config_text=test_setup_layer.WITH_SETUP)
    await world.run_until_over()
    assert made
    await cancelled(world)
    assert world.cloud.volumes == set()


async def test_all_is_let_go_before_the_end_is_written(world, monkeypatch):
    """A process that dies between the two is followed by one that lets go again; after the end nobody would."""
    world.hub.missing_bytes = [1000]
    states = []
    plain = world.hub.unuse

    async def unuse(user):
        states.extend(attempt.state.value for attempt in await world.the_attempts())
        await plain(user)

    monkeypatch.setattr(world.hub, "unuse", unuse)
    then_cancelled(world, monkeypatch, world.hub, "lay_out")
    await world.start(config_text=WITH_MODEL)
    await world.run_until_over()
    await cancelled(world)
    assert states == ["chosen"]
