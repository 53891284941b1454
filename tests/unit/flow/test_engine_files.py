"""What the engine makes of lock, policy and the new keys of the file."""

from __future__ import annotations

import pytest

from gpurun.domain.forge import CheckStatus
from gpurun.domain.ids import HubRef, ImageRef, ImageTag, Revision
from gpurun.domain.lock import ImagePin, Lock, LockedFile, LockedImage, LockedModel
from gpurun.domain.plan import ModelFile
from gpurun.domain.run import Verdict
from gpurun.flow import failpoints
from gpurun.plan.lock import write_lock
from gpurun.report.check import render_check
from gpurun.report.comment import render_comment
from gpurun.report.facts import RunFacts
from tests.fakes.parts import Script
from tests.fakes.rows import IMAGE
from tests.fakes.world import CONFIG, World

DIGEST = "sha256:" + "d" * 64
TAG = ImageTag("registry.example/app:1.2")
LOCKED = ImageRef(f"{TAG}@{DIGEST}")
REVISION = Revision("e" * 40)
FILE = ModelFile(path="model.bin", size=5, sha256="f" * 64, etag="f" * 64)
LOCK = Lock(
    images=(LockedImage(ref=TAG, pin=ImagePin(digest=DIGEST), locked_on="2026-12-01"),),
    models=(
        LockedModel(
            id="org/model",
            ref=HubRef("main"),
            revision=REVISION,
            locked_on="2026-12-01",
            files=(LockedFile(path="model.bin", size=5, sha256="f" * 64),),
        ),
    ),
)
BY_NAME = f"""\
version: 1
jobs:
  smoke:
    image: {TAG}
    run: python smoke.py
    models:
      - id: org/model
"""


@pytest.fixture
def store_url(tmp_path):
    """SQLite: the engine is the same on both, and `test_engine_faults` runs on both."""
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
def world(store, clock, chance):
    world = World(store, clock, chance)
    world.images.known.add(LOCKED)
    world.hub.models[("org/model", REVISION)] = (FILE,)
    yield world
    failpoints.disarm()


async def refused(world: World, reason: str) -> tuple[str, str]:
    """The comment, and the check's title with its annotations, of a run that nothing was started for."""
    await world.run_for(seconds=20)
    run = await world.expect(Verdict.REFUSED, reason)
    assert not world.cloud.book
    facts = RunFacts(run=run, now=world.clock.now())
    check = render_check(facts)
    assert (check.status, check.conclusion) == (CheckStatus.COMPLETED, "failure")
    notes = "\n".join(f"{note.path}:{note.line}: {note.message}" for note in check.annotations)
    return render_comment(facts), f"{check.title}\n{notes}"


async def test_names_are_what_the_lock_pins(world):
    world.forge.files[".gpurun.lock"] = write_lock(LOCK).encode()
    await world.start(config_text=BY_NAME)
    await world.run_for(seconds=20)
    run = await world.expect(Verdict.PASSED)
    assert run.plan.image == LOCKED
    assert [(model.id, model.revision) for model in run.plan.models] == [("org/model", REVISION)]
    assert world.forge.asked_for == [".gpurun.lock"]
    assert run.pins.lock is not None
    assert [model.files for model in run.pins.lock.models] == [()]


async def test_the_lock_lies_beside_the_file_and_the_job_starts_there(world):
    world.forge.files["a/b/.gpurun.lock"] = write_lock(LOCK).encode()
    await world.start(config_text=BY_NAME + "    workdir: demo\n", folder="a/b")
    await world.run_for(seconds=20)
    run = await world.expect(Verdict.PASSED)
    assert run.plan.workdir == "a/b/demo"
    assert world.forge.asked_for == ["a/b/.gpurun.lock"]


async def test_a_file_that_pins_everything_needs_no_lock(world):
    await world.start()
    await world.run_for(seconds=20)
    await world.expect(Verdict.PASSED)
    assert world.forge.asked_for == []


async def test_without_a_lock_it_says_how_to_get_one(world):
    await world.start(config_text=BY_NAME)
    comment, check = await refused(world, "pin")
    told = "The image registry.example/app:1.2 and the model org/model at main are not pinned, and can move."
    assert told in comment
    assert "Run `gpurun lock` and commit `.gpurun.lock`." in comment
    assert "`image: registry.example/app@sha256:<digest>`" in comment
    assert "`docker buildx imagetools inspect registry.example/app:1.2`" in comment
    assert check.startswith(f"refused: {told}")


async def test_a_broken_lock_is_told_with_its_line(world):
    world.forge.files["a/.gpurun.lock"] = write_lock(LOCK).replace("locked_on", "looked_on", 1).encode()
    await world.start(config_text=BY_NAME, folder="a")
    comment, check = await refused(world, "config")
    assert "`.gpurun.lock`, line 2: the key 'looked_on' is unknown" in comment
    assert "a/.gpurun.lock:2: the key 'looked_on' is unknown" in check
    assert "a/.gpurun.yml" not in check


async def test_a_hub_that_lists_other_files_than_the_lock_is_refused(world):
    world.forge.files[".gpurun.lock"] = write_lock(LOCK).replace('"size": 5', '"size": 6').encode()
    await world.start(config_text=BY_NAME)
    comment, _ = await refused(world, "pin")
    assert "The hub lists 'model.bin' of org/model" in comment


async def test_a_lock_is_read_again_after_a_death(world):
    world.forge.files[".gpurun.lock"] = write_lock(LOCK).encode()
    failpoints.arm("run.lock.after", "raise")
    await world.start(config_text=BY_NAME)
    await world.run_for(seconds=200)
    await world.expect(Verdict.PASSED)
    assert world.crashes == 1


async def test_what_the_default_branch_does_not_allow_is_all_told(world):
    policy = CONFIG + "policy: {images: [ghcr.io/org/*], max: {duration: 10m}}\n"
    await world.start(policy_text=policy)
    comment, check = await refused(world, "policy")
    assert "The image registry.example/app is not allowed here: ghcr.io/org/" in comment
    assert "`max_duration` is 1800 s, and 600 s is the most here." in comment
    assert "`policy` of the default branch's `.gpurun.yml` says so" in comment
    assert "Correct the file, push, then write `/gpurun smoke`." in comment
    assert check.startswith("refused: The image registry.example/app is not allowed here")


async def test_a_broken_file_there_starts_nothing(world):
    await world.start(policy_text="version: 1\npolicy: {images: 5}\n")
    comment, _ = await refused(world, "policy")
    assert "The policy of the default branch cannot be read" in comment
    assert "Who may merge there can correct its `.gpurun.yml`." in comment


async def test_another_fault_of_that_file_is_no_matter(world):
    await world.start(policy_text="version: 9\njobs: {}\npolicy: {providers: [docker]}\n" + "x: 1\n")
    comment, _ = await refused(world, "hardware")
    assert "This server has none of the providers that the job may use: docker." in comment


@pytest.mark.parametrize(
    ("own", "policy", "folder", "noted"),
    [
        ("", None, "", False),
        ("policy: {max: {gpus: 9}}\n", None, "", True),
        ("policy: {max: {gpus: 9}}\n", "policy: {max: {gpus: 9}}\n", "", False),
        ("policy: {max: {gpus: 9}}\n", "policy: {max: {gpus: 1}}\n", "", True),
        ("", "policy: {max: {gpus: 1}}\n", "", True),
        ("", "policy: {max: {gpus: 1}}\n", "a", False),
        ("policy: {max: {gpus: 9}}\n", "", "a", True),
    ],
)
async def test_a_policy_that_does_not_count_is_noted(world, own, policy, folder, noted):
    text = None if policy is None else CONFIG + policy
    await world.start(config_text=CONFIG + own, policy_text=text, folder=folder)
    await world.run_for(seconds=20)
    run = await world.expect(Verdict.PASSED)
    path = f"{folder}/.gpurun.yml" if folder else ".gpurun.yml"
    told = f"Note: `policy` in `{path}` of this commit is ignored: the one at the top of the default branch applies."
    assert (told in render_comment(RunFacts(run=run, now=world.clock.now()))) is noted


async def test_a_job_at_a_terminal_is_under_nobodys_policy(world):
    await world.start(config_text=CONFIG + "policy: {max: {gpus: 0}}\n", pr=None)
    await world.run_for(seconds=20)
    assert (await world.expect(Verdict.PASSED)).notes == ()


@pytest.mark.parametrize(
    ("keys", "attempts"),
    [("", 2), ("    retry: {attempts: 1}\n", 1), ("    retry: {attempts: 4}\n", 4), ("    kind: batch\n", 3)],
)
async def test_as_many_machines_are_tried_as_the_file_says(world, keys, attempts):
    world.agents.script = Script(claims=False)
    await world.start(config_text=CONFIG + keys)
    await world.run_until_over()
    assert len(await world.the_attempts()) == attempts
    await world.expect(Verdict.LOST, "boot_timeout")


async def test_every_fault_of_the_file_is_told_in_comment_and_check(world):
    broken = f"version: 1\njobs:\n  smoke:\n    imag: {IMAGE}\n    run: x\n    env: {{PATH: x}}\n"
    await world.start(config_text=broken, folder="a")
    comment, check = await refused(world, "config")
    assert "a/.gpurun.yml, line 4:" in comment
    assert f"4 |     imag: {IMAGE}" in comment
    assert "- line 6: " in comment
    lines = [line.split(":")[1] for line in check.splitlines()[1:] if line.startswith("a/.gpurun.yml:")]
    assert lines == ["4", "6"]
