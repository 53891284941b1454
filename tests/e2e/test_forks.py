"""A pull request of a fork on its whole way: asked, allowed for one commit, run, and stopped by a push."""

from __future__ import annotations

import json

import pytest

from tests.e2e.test_secrets import set_secret
from tests.world import World, open_world
from tests.world.laws import assert_laws, assert_log

pytestmark = [pytest.mark.docker, pytest.mark.timeout(200)]


@pytest.fixture
async def world(tmp_path, base_images):
    async with open_world(tmp_path, image=base_images.python, allow_untrusted_local="true") as world:
        world.repo.grant("dan", "maintain")
        yield world


@pytest.fixture
async def careful(tmp_path, base_images):
    """As a server is without that setting."""
    async with open_world(tmp_path, image=base_images.python) as world:
        yield world


def file(world: World, rules: str = "", **jobs: dict[str, object]) -> dict[str, str]:
    config = {"version": 1, "jobs": {name: {"image": world.image, **job} for name, job in jobs.items()}}
    return {".gpurun.yml": json.dumps(config | json.loads(rules or "{}"), indent=2)}


def open_fork(world: World, files: dict[str, str]):
    world.pull = world.github.user("mallory").open_pull_request(world.repo, branch="patch-1", files=files, fork=True)
    return world.pull


async def test_a_fork_is_asked_about_allowed_run_and_stopped(world: World):
    mallory = world.github.user("mallory")
    world.alice.push(world.repo, file(world, smoke={"run": "echo good"}), branch="main")
    pull = open_fork(world, file(world, smoke={"run": "echo mine; ls; env"}) | {"mine.txt": "of the fork"})
    world.comment("/gpurun smoke", by="mallory")
    await world.expect_comment("is for people with write access")
    world.comment("/gpurun smoke")
    await world.expect_check("gpurun / smoke", "action_required")
    request = await world.expect_comment(f"`/gpurun approve sha={pull.head_sha}")
    assert "**It changes the job `smoke` itself**, against `main`: `run`." in request
    assert "-run: echo good\n+run: echo mine; ls; env" in request
    assert not world.made_containers()
    world.comment(f"/gpurun approve sha={pull.head_sha}", by="alice")
    await world.expect_comment(f"{pull.head_sha}` is for people with the role maintain")
    world.comment(f"/gpurun approve sha={pull.head_sha} max-cost=1", by="dan")
    await world.expect_check("gpurun / smoke", "success")
    body = await world.expect_comment("✅ passed")
    assert f"`{pull.head_sha[:12]}` was approved by `dan` for at most $1.00." in body
    log = (await world.page(body, "log")).text
    assert "mine.txt" in log
    mallory.push(pull, file(world, smoke={"run": "sleep 600"}))
    world.comment(f"/gpurun approve sha={pull.head_sha}\n/gpurun smoke", by="dan")
    await world.expect_comment("may run until the next push")
    await world.expect_container()
    mallory.push(pull, {"more.txt": "1"})
    await world.expect_comment("Cancelled by a push: the head is ")
    record = await assert_laws(world)
    assert [approval["end"] for approval in record.approvals] == ["pushed", "pushed"]
    assert {run["untrusted"] for run in record.runs} == {"fork"}


async def test_a_fork_gets_no_secret_whatever_its_file_and_its_approver_say(world: World):
    set_secret(world)
    policy = {"secrets": {"APP_KEY": {"jobs": ["smoke"]}}}
    rules = json.dumps({"permissions": {"users": {"mallory": "admin"}}, "policy": policy})
    pull = open_fork(world, file(world, rules, smoke={"run": "env", "secrets": ["APP_KEY"]}))
    world.comment(f"/gpurun approve sha={pull.head_sha}", by="mallory")
    await world.expect_comment("is for people with the role maintain")
    world.comment(f"/gpurun approve sha={pull.head_sha}\n/gpurun smoke", by="dan")
    await world.expect_comment("may run until the next push")
    await world.expect_check("gpurun / smoke", "failure")
    await world.expect_comment("Code that somebody else had to approve gets no secrets")
    assert not world.made_containers()
    await assert_laws(world)


async def test_the_bots_own_engine_takes_no_code_of_forks_unless_it_is_told_to(careful: World):
    pull = open_fork(careful, file(careful, smoke={"run": "true"}))
    careful.comment(f"/gpurun approve sha={pull.head_sha}\n/gpurun smoke", by="carol")
    await careful.expect_comment("may run until the next push")
    await careful.expect_check("gpurun / smoke", "failure")
    assert "GPURUN_ALLOW_UNTRUSTED_LOCAL=true" in await careful.expect_comment("refused")
    assert not careful.made_containers()
    await assert_laws(careful)


async def test_an_approval_before_the_command_is_taken(world: World):
    pull = open_fork(world, file(world, smoke={"run": "echo went"}))
    world.comment(f"/gpurun approve sha={pull.head_sha}\n/gpurun smoke", by="dan")
    await world.expect_comment("may run until the next push")
    await world.expect_check("gpurun / smoke", "success")
    await world.expect_comment("✅ passed")
    await assert_laws(world)
    assert_log(world, "smoke", b"went\n")
