"""Buttons of a real run: Approve at a fork's check, Cancel, Re-run, and a signed press that never was."""

from __future__ import annotations

import json

import pytest

from tests.fakes.github.state import CheckButton
from tests.world import World, open_world
from tests.world.laws import assert_laws
from tests.world.rows import select

pytestmark = [pytest.mark.docker, pytest.mark.timeout(200)]


@pytest.fixture
async def world(tmp_path, base_images):
    async with open_world(tmp_path, image=base_images.python, allow_untrusted_local="true") as world:
        world.repo.grant("dan", "maintain")
        yield world


def press(world: World, check, identifier: str, *, by: str) -> None:
    if identifier not in [one.identifier for one in check.actions]:
        check.actions = [*check.actions[:2], CheckButton(identifier, "of a test", identifier)]
    world.github.user(by).press(check, identifier)


async def test_a_fork_is_approved_stopped_and_run_again_by_buttons(world: World):
    job = {"image": world.image, "run": "echo began; sleep 600"}
    files = {".gpurun.yml": json.dumps({"version": 1, "jobs": {"smoke": job}})}
    mallory = world.github.user("mallory")
    world.pull = pull = mallory.open_pull_request(world.repo, branch="patch-1", files=files, fork=True)
    world.comment("/gpurun smoke")
    check = await world.expect_check("gpurun / smoke", "action_required")
    await world.expect_comment(f"/gpurun approve sha={pull.head_sha}")
    press(world, check, "approve:1000000", by="mallory")
    refused = await world.expect_comment("`mallory` pressed Approve at `gpurun / smoke`.")
    assert "people with the role maintain" in refused
    press(world, check, "approve:1000000", by="dan")
    await world.expect_container()
    press(world, check, "cancel", by="erin")
    await world.expect_check("gpurun / smoke", "cancelled")
    assert "for at most $1.00" in await world.expect_comment("Cancelled by erin")
    await world.expect_no_container()
    world.github.user("erin").rerun(check)
    await world.expect_container()
    mallory.push(pull, {"more.txt": "1"})
    await world.expect_comment("Cancelled by a push: the head is ")
    world.github.user("erin").rerun(check)
    await world.expect_comment("`erin` pressed Re-run at `gpurun / smoke`. That check is of")
    record = await assert_laws(world)
    (approval,) = record.approvals
    assert (approval["by"], approval["sha"], approval["end"]) == ("dan", check.head_sha, "pushed")
    assert [run["why"] for run in record.runs] == ["comment", "button"]


async def test_a_signed_press_that_github_has_sent_in_other_words_starts_nothing(world: World):
    world.jobs(smoke={"run": "exit 3"})
    world.comment("/gpurun smoke")
    check = await world.expect_check("gpurun / smoke", "failure")
    await world.expect_comment("gpurun smoke: ❌ failed")
    world.github.user("bob").rerun(check)
    hook = world.github.queued[-1]
    hook.body = hook.body.replace(b'"sender": {"login": "bob"', b'"sender": {"login": "carol"')
    settled = "SELECT note FROM inbox WHERE event = 'check_run' AND state = 'ignored'"
    (row,) = await world.until(lambda: select(world.database, settled) or None, "a delivery that is not believed")
    assert row["note"] == "forged_suspect: GitHub has sent rerequested by @bob under this id"
    record = await assert_laws(world)
    assert len(record.runs) == 1
