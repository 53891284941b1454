"""The volume of `setup`: for whom, which one, and that it goes when nobody needs it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpurun.domain.layer import Layer, LayerUse
from gpurun.domain.run import Untrusted, Verdict
from gpurun.flow.keep_layers import look_at_layers
from gpurun.plan.layer import NOT_WITH_BUILD, NOT_WITH_SECRETS, layer_key, why_not_kept
from gpurun.run.layers import layer_scopes
from tests.fakes.cloud import FakeCloud, KeepingCloud
from tests.fakes.rows import a_run
from tests.fakes.world import CONFIG, World

WITH_SETUP = CONFIG.replace("    limits:", "    setup: pip install -r r.txt\n    setup_inputs: [r.txt]\n    limits:")


@pytest.fixture
def store_url(tmp_path):
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
def world(store, clock, chance):
    world = World(store, clock, chance)
    world.use(KeepingCloud(clock))
    return world


async def test_an_instance_gets_a_volume_and_leaves_none_that_nobody_knows(world):
    run_id = await world.start(config_text=WITH_SETUP)
    while not world.cloud.book:
        await world.beat()
        world.clock.advance(seconds=1)
    (attempt,) = await world.the_attempts()
    launch = world.cloud.book[0].launch
    assert launch.layer == world.layers.uses[attempt.id]
    (wish,) = {one.key: one for one in world.layers.wishes}.values()
    run = await world.store.read(lambda tx: tx.run(run_id))
    assert wish.key == layer_key(run.plan, "")
    assert (wish.read, wish.write) == (("shared", "pr-1"), "pr-1")
    assert run.plan.setup_inputs[0].path == "r.txt"
    assert world.cloud.volumes == {launch.layer.volume}
    await world.run_until_over()
    await world.expect(Verdict.PASSED)
    assert (world.layers.uses, world.cloud.volumes) == ({}, set())


@pytest.mark.parametrize(
    "config",
    [CONFIG, CONFIG.replace("    limits:", "    setup: make\n    limits:")],
)
async def test_who_does_not_say_what_setup_reads_gets_none(world, config):
    await world.start(config_text=config)
    await world.run_until_over()
    await world.expect(Verdict.PASSED)
    assert world.layers.wishes == []
    assert world.cloud.book[0].launch.layer is None


async def test_a_provider_without_volumes_is_not_asked(world, clock):
    world.use(FakeCloud(clock))
    await world.start(config_text=WITH_SETUP)
    await world.run_until_over()
    await world.expect(Verdict.PASSED)
    assert world.layers.wishes == []


async def test_a_pattern_that_means_nothing_is_refused_with_its_line(world):
    await world.start(config_text=WITH_SETUP.replace("r.txt]", "missing]"))
    await world.run_until_over()
    run = await world.expect(Verdict.REFUSED, "config")
    assert run.error_line == 7
    assert "means no file of the commit" in run.detail


def test_whose_layers_a_run_takes_and_makes():
    assert layer_scopes(a_run(pr=5)) == (("shared", "pr-5"), "pr-5")
    assert layer_scopes(a_run(pr=None, why="cli")) == (("local",), "local")
    assert layer_scopes(a_run(pr=None, why="push")) == (("shared",), "shared")
    assert layer_scopes(a_run(pr=5, untrusted=Untrusted.AUTHOR)) == ((), "")


async def test_the_key_changes_with_all_that_setup_depends_on(world):
    run_id = await world.start(config_text=WITH_SETUP)
    while not world.cloud.book:
        await world.beat()
        world.clock.advance(seconds=1)
    plan = (await world.store.read(lambda tx: tx.run(run_id))).plan
    (one,) = plan.setup_inputs
    others = [
        replace(plan, setup="make"), replace(plan, workdir="sub"), replace(plan, env=(("A", "b"),)),
        replace(plan, setup_inputs=(replace(one, blob="f" * 40),)),
        replace(plan, setup_inputs=(replace(one, mode="100755"),)),
        replace(plan, resources=replace(plan.resources, gpus=1)), replace(plan, git=True), replace(plan, lfs=True),
    ]  # fmt: skip
    keys = {
        layer_key(plan, "linux/amd64"),
        layer_key(plan, "linux/arm64"),
        *(layer_key(p, "linux/amd64") for p in others),
    }
    assert len(keys) == len(others) + 2
    same = replace(plan, run="other", commit=type(plan.commit)("9" * 40), artifacts=("x",), max_duration_s=5)
    assert layer_key(same, "linux/amd64") == layer_key(plan, "linux/amd64")


async def test_what_may_not_be_kept_has_no_key_and_is_told(world):
    run_id = await world.start(config_text=WITH_SETUP)
    while not world.cloud.book:
        await world.beat()
        world.clock.advance(seconds=1)
    plan = (await world.store.read(lambda tx: tx.run(run_id))).plan
    assert layer_key(plan, "")
    assert why_not_kept(plan) == ""
    for other, why in (
        (replace(plan, secrets=("TOKEN",)), NOT_WITH_SECRETS),
        (replace(plan, image=None), NOT_WITH_BUILD),
        (replace(plan, setup_inputs=()), ""),  # nobody asked for it
    ):
        assert (layer_key(other, ""), why_not_kept(other)) == ("", why)


async def test_what_killed_processes_left_is_found(world):
    world.cloud.volumes = {"of-nobody", "in-use"}
    world.layers.uses = {
        "0" * 26: LayerUse(volume="in-use", shelf="s", layer=Layer(sha256="a", size=1, setup_ms=1, day="d"))
    }
    await look_at_layers(world.store, world.layers, [world.cloud, FakeCloud(world.clock)])
    assert world.cloud.volumes == {"in-use"}
