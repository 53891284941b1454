"""A pin of `.gpurun.lock` that does not hold any more: what is gone, when it was there, and what to type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpurun.domain.errors import PinNotFound
from gpurun.domain.ids import HubRef, ImageRef, ImageTag, Revision
from gpurun.domain.lock import ImagePin, Lock, LockedFile, LockedImage, LockedModel
from gpurun.domain.plan import ModelFile
from gpurun.domain.run import Verdict
from gpurun.plan.lock import LOCK_NAME, lock_upgraded, write_lock
from gpurun.report.comment import render_comment
from gpurun.report.facts import RunFacts
from tests.fakes.parts import SourceOnlyForge
from tests.fakes.world import World

TAG = ImageTag("ghcr.io/org/app:1.2")
REVISION = Revision("1" * 40)
CONFIG = f"""\
version: 1
jobs:
  smoke:
    image: {TAG}
    run: python smoke.py
    models: [{{id: acme/tiny}}]
"""
FILE = ModelFile(path="config.json", size=2, sha256="c" * 64, etag="d" * 40)
LOCK = Lock(
    images=(LockedImage(ref=TAG, pin=ImagePin(digest=f"sha256:{'a' * 64}"), locked_on="2026-11-01"),),
    models=(
        LockedModel(
            id="acme/tiny",
            ref=HubRef("main"),
            revision=REVISION,
            locked_on="2026-10-02",
            files=(LockedFile(path=FILE.path, size=FILE.size, blob=FILE.etag),),
        ),
    ),
)
IMAGE = ImageRef(f"{TAG}@sha256:{'a' * 64}")
UPGRADE = lock_upgraded("")
PLACES = (LOCK_NAME, f"a/b/{LOCK_NAME}")


@pytest.fixture
def store_url(tmp_path):
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
def world(store, clock, chance):
    files = dict.fromkeys(PLACES, write_lock(LOCK).encode())
    made = World(store, clock, chance, forge=SourceOnlyForge(files=files))
    made.images.known = {IMAGE}
    made.hub.models = {("acme/tiny", REVISION): (FILE,)}
    yield made
    assert set(made.forge.asked_for) <= set(PLACES)


async def refusal(world) -> str:
    await world.start(config_text=CONFIG)
    await world.run_for(seconds=30)
    return (await world.expect(Verdict.REFUSED, "pin")).detail


async def test_while_the_pins_hold_the_lock_is_what_runs(world):
    await world.start(config_text=CONFIG)
    await world.run_for(seconds=30)
    run = await world.expect(Verdict.PASSED, "exit")
    assert run.plan.image == IMAGE
    assert [model.revision for model in run.plan.models] == [REVISION]


async def test_b102_a_tag_that_was_pushed_again_changes_no_run_and_is_told(world):
    world.images.tags[str(TAG)] = ImagePin(digest=f"sha256:{'b' * 64}")
    await world.start(config_text=CONFIG)
    await world.run_for(seconds=30)
    run = await world.expect(Verdict.PASSED, "exit")
    assert run.plan.image == IMAGE
    assert run.notes == (
        f"{TAG} points to sha256:bbbbbbbbbbbb now; this run used the lock's sha256:aaaaaaaaaaaa of 2026-11-01. "
        + UPGRADE,
    )
    assert "points to sha256:bbbbbbbbbbbb now" in render_comment(RunFacts(run=run, now=world.clock.now()))


async def test_a_tag_that_did_not_move_is_not_told(world):
    world.images.tags[str(TAG)] = ImagePin(digest=f"sha256:{'a' * 64}")
    await world.start(config_text=CONFIG)
    await world.run_for(seconds=30)
    assert (await world.expect(Verdict.PASSED, "exit")).notes == ()


async def test_b102_a_digest_that_was_deleted_is_told(world):
    world.images.known = set()
    told = await refusal(world)
    assert told == f"The registry has no {IMAGE}. It was there on 2026-11-01, when `.gpurun.lock` pinned it. {UPGRADE}"


async def test_a_commit_of_a_model_that_is_gone(world):
    world.hub.models = {}
    told = await refusal(world)
    assert f"acme/tiny at {REVISION}. It was there on 2026-10-02, when `.gpurun.lock` pinned it." in told
    assert told.endswith(UPGRADE)


async def test_a_model_that_is_gated_since(world):
    gated = PinNotFound("acme/tiny is gated.", hint="Accept its terms.", pin=f"acme/tiny at {REVISION}")
    world.hub.errors = [gated]
    assert f"It was there on 2026-10-02, when `.gpurun.lock` pinned it. Accept its terms. {UPGRADE}" in await refusal(
        world
    )


async def test_another_pin_is_no_way_out_where_we_may_not_look(world):
    world.hub.errors = [
        PinNotFound("acme/tiny is gated.", hint="Accept its terms.", pin=f"acme/tiny at {REVISION}", closed=True)
    ]
    told = await refusal(world)
    assert told.endswith("It was there on 2026-10-02, when `.gpurun.lock` pinned it. Accept its terms.")


async def test_what_says_nothing_about_the_pin_gets_no_day(world):
    world.hub.errors = [PinNotFound("The hub does not accept the bot's token.")]
    assert await refusal(world) == "The hub does not accept the bot's token."


async def test_what_the_file_pins_itself_gets_no_day(world):
    world.images.known = set()
    text = f"version: 1\njobs:\n  smoke: {{image: {IMAGE}, run: 'true'}}\n"
    await world.start(config_text=text)
    await world.run_for(seconds=30)
    assert (await world.expect(Verdict.REFUSED, "pin")).detail == f"The registry has no {IMAGE}."


async def test_a_hub_that_lists_other_files_than_the_lock_has_seen(world):
    world.hub.models = {("acme/tiny", REVISION): (replace(FILE, etag="e" * 40),)}
    told = await refusal(world)
    assert "The hub lists 'config.json' of acme/tiny" in told
    assert "otherwise than `.gpurun.lock` of 2026-10-02" in told


async def test_a_name_that_no_lock_pins(world):
    world.forge.files = {}
    told = await refusal(world)
    assert "The image ghcr.io/org/app:1.2 and the model acme/tiny at main are not pinned, and can move." in told
    assert "Run `gpurun lock` and commit `.gpurun.lock`." in told
    assert "`image: ghcr.io/org/app@sha256:<digest>` (`docker buildx imagetools inspect ghcr.io/org/app:1.2`" in told
    assert "`revision: <commit>` for acme/tiny (40 hex digits, from the hub)." in told


@pytest.mark.parametrize("rot", ["image", "model", "files"])
async def test_the_command_is_that_for_the_folder_of_the_file(world, rot):
    match rot:
        case "image":
            world.images.known = set()
        case "model":
            world.hub.errors = [PinNotFound("acme/tiny is gated.", pin=f"acme/tiny at {REVISION}")]
        case _:
            world.hub.models = {("acme/tiny", REVISION): (replace(FILE, etag="e" * 40),)}
    await world.start(config_text=CONFIG, folder="a/b")
    await world.run_for(seconds=30)
    told = (await world.expect(Verdict.REFUSED, "pin")).detail
    assert "`gpurun lock a/b/.gpurun.yml --upgrade`" in told


@pytest.mark.parametrize(
    "models", ["[{id: acme/tiny, include: ['*.json'], exclude: [x]}]", "[{id: acme/tiny, exclude: [x]}]"]
)
async def test_the_lock_has_all_files_and_the_plan_the_wanted_ones(world, models):
    more = ModelFile(path="x", size=2, sha256="e" * 64, etag="f" * 40)
    (entry,) = LOCK.models
    locked = replace(entry, files=(*entry.files, LockedFile(path=more.path, size=more.size, blob=more.etag)))
    world.forge.files[LOCK_NAME] = write_lock(replace(LOCK, models=(locked,))).encode()
    world.hub.models = {("acme/tiny", REVISION): (FILE, more)}
    await world.start(config_text=CONFIG.replace("[{id: acme/tiny}]", models))
    await world.run_for(seconds=30)
    run = await world.expect(Verdict.PASSED, "exit")
    assert [file.path for file in run.plan.models[0].files] == [FILE.path]


async def test_an_include_that_matches_nothing_is_refused_at_its_line(world):
    text = CONFIG.replace("[{id: acme/tiny}]", "\n      - id: acme/tiny\n        include: ['*.gguf']")
    await world.start(config_text=text)
    await world.run_for(seconds=30)
    run = await world.expect(Verdict.REFUSED, "config")
    assert run.error_line == 8
    assert "`include` and `exclude` leave none of the 1 files of acme/tiny" in run.detail
    assert "Write patterns that match files of the repository" in run.detail
