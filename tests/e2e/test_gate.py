"""`gpurun/gate` on a real server: it waits, turns, and cannot be talked into turning."""

from __future__ import annotations

import json

import pytest

from tests.fakes.github import Pull
from tests.world import World, open_world
from tests.world.laws import assert_laws

pytestmark = [pytest.mark.docker, pytest.mark.timeout(200)]

GATE = "gpurun/gate"


@pytest.fixture
async def world(tmp_path, base_images):
    async with open_world(tmp_path, image=base_images.python, allow_untrusted_local="true") as world:
        world.repo.grant("dan", "maintain")
        world.alice.push(world.repo, file(world, run="echo good"), branch="main")
        yield world


def file(world: World, **job: object) -> dict[str, str | None]:
    smoke = {"image": world.image, "required": True} | job
    return {".gpurun.yml": json.dumps({"version": 1, "jobs": {"smoke": smoke}}, indent=2)}


def open_pull(world: World, files: dict[str, str | None], *, by: str = "alice", fork: bool = False) -> Pull:
    world.pull = world.github.user(by).open_pull_request(world.repo, branch="work", files=files, fork=fork)
    return world.pull


async def says(world: World, conclusion: str | None, words: str) -> None:
    """The newest gate of the head: its conclusion, and what its title holds."""
    pull = world.pull
    assert pull is not None

    def look() -> bool | None:
        found = world.github.checks(world.repo, sha=pull.head_sha, name=GATE)
        return True if found and found[-1].conclusion == conclusion and words in found[-1].title else None

    await world.until(look, f"{GATE} with {conclusion}: {words}")


async def test_it_turns_with_the_run_and_back_with_a_push(world: World):
    pull = open_pull(world, {"app.py": "1"})
    await says(world, "action_required", "not started: smoke. Type /gpurun smoke")
    await world.expect_check("gpurun / smoke", "action_required")
    world.comment("/gpurun smoke")
    await says(world, "success", "passed: smoke")
    await world.expect_comment("✅ passed")
    world.alice.push(pull, {"app.py": "2"})
    await says(world, "action_required", "not started: smoke")
    await assert_laws(world)


async def test_a_pull_request_cannot_let_itself_through(world: World):
    pull = open_pull(world, file(world, run="true"))
    await says(world, "action_required", "the check itself changed: smoke")
    world.comment("/gpurun smoke")
    await world.expect_check("gpurun / smoke", "success")
    await world.expect_comment("✅ passed")
    await says(world, "action_required", f"Type /gpurun approve sha={pull.head_sha}")
    world.comment(f"/gpurun approve sha={pull.head_sha}", by="alice")
    await world.expect_comment("is for people with the role maintain")
    world.comment(f"/gpurun approve sha={pull.head_sha}", by="dan")
    await world.expect_comment("may run until the next push")
    await says(world, "success", "passed: smoke")
    world.alice.push(pull, {".gpurun.yml": None})
    await says(world, "action_required", "the check itself changed: smoke")
    await assert_laws(world)


async def test_a_fork_waits_for_its_commit(world: World):
    pull = open_pull(world, {"app.py": "1"}, by="mallory", fork=True)
    await says(world, "action_required", "not started: smoke")
    world.comment("/gpurun smoke")
    await says(world, "action_required", f"waits for approval: smoke. Type /gpurun approve sha={pull.head_sha}")
    await world.expect_comment("waiting for approval")
    world.comment(f"/gpurun approve sha={pull.head_sha}", by="dan")
    await says(world, "success", "passed: smoke")
    await world.expect_comment("✅ passed")
    await assert_laws(world)
