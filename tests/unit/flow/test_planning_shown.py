"""A pull request says what planning does, and what is tried again and why."""

from __future__ import annotations

import pytest

from gpurun.domain.errors import RegistryUnavailable, SourceUnavailable
from gpurun.domain.ids import CommitSha, ImageRef
from gpurun.flow.engine import know_providers
from gpurun.flow.worker import Worker
from tests.fakes.cloud import SlowCloud, SmallCloud
from tests.fakes.parts import FakeGit, FakeImages
from tests.fakes.rows import TREE
from tests.fakes.world import World
from tests.unit.flow.town import Town, open_town

DOWN = "The registry of ghcr.io does not answer."
IMAGE = ImageRef("ghcr.io/acme/app@sha256:" + "a" * 64)
WITH_GPU = f"version: 1\njobs:\n  smoke:\n    resources: {{gpu: 1}}\n    image: {IMAGE}\n    run: x\n"


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance) as town:
        yield town


@pytest.fixture
async def world(town):
    """The engine of the town, with fakes around it."""
    world = World(town.store, town.clock, town.chance)
    world.git = FakeGit({CommitSha(town.pull.head_sha): TREE})
    world.images = FakeImages({IMAGE})
    handlers = {**world.handlers(), **town.handlers()}
    town.worker = Worker(town.store, town.clock, town.chance, handlers, limit=8)
    await know_providers(world.services())
    return world


async def pass_time(town: Town, *, seconds: int) -> None:
    for _ in range(seconds):
        await town.later(seconds=1)


def shown(town: Town) -> tuple[str, str]:
    """What the comment says, and the title of the check."""
    (comment,), (check,) = town.comments(), town.github.checks(town.repo)
    return comment.body, check.title


async def test_a_registry_that_does_not_answer_is_told_while_it_is_tried_again(town: Town, world: World):
    world.images.errors = [RegistryUnavailable(DOWN)] * 1000
    await town.says("/gpurun smoke")
    await pass_time(town, seconds=20)
    assert f"the image; trying again: {DOWN}" in shown(town)[0]


async def test_the_trouble_of_a_step_is_not_told_after_it_went_well(town: Town, world: World):
    world.git.errors = [SourceUnavailable("git is down.", retry_after_s=20)]
    world.images.errors = [RegistryUnavailable(DOWN)] * 1000
    await town.says("/gpurun smoke")
    await pass_time(town, seconds=18)
    assert "the commit; trying again: git is down." in shown(town)[0]
    await pass_time(town, seconds=190)
    body, _ = shown(town)
    assert "git is down." not in body
    assert f"the image; trying again: {DOWN}" in body


async def test_a_job_for_which_there_is_no_machine_is_refused_in_words(town: Town, world: World):
    world.use(SmallCloud(town.clock))
    town.worker = Worker(town.store, town.clock, town.chance, {**world.handlers(), **town.handlers()}, limit=8)
    sha = town.alice.push(town.pull, {".gpurun.yml": WITH_GPU})
    world.git.trees[CommitSha(sha)] = TREE
    await town.says("/gpurun smoke")
    await pass_time(town, seconds=3)
    (comment,), (check,) = town.comments(), town.github.checks(town.repo)
    assert "fake has 0 GPUs." in comment.body
    assert "4 |     resources: {gpu: 1}" in comment.body
    assert "Correct the file, push" in comment.body
    assert (check.conclusion, check.title.split(":")[0]) == ("failure", "refused")


async def test_an_image_that_cannot_be_pulled_now_is_told_while_it_is_tried_again(town: Town, world: World):
    """A registry that asks to slow down, for example."""
    world.use(SlowCloud(town.clock, pulls=0))
    world.cloud.break_down("prepare", "unavailable")
    town.worker = Worker(town.store, town.clock, town.chance, {**world.handlers(), **town.handlers()}, limit=8)
    await town.says("/gpurun smoke")
    await pass_time(town, seconds=20)
    body, _ = shown(town)
    assert "**preparing** since" in body
    assert "trying again: The cloud did not answer." in body
    world.cloud.repair()
    await pass_time(town, seconds=190)
    assert "trying again" not in shown(town)[0]
