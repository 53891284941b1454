"""Weights come before the instance, and what mounts them is known until the instance is gone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import anyio
import pytest

from gpurun.adapters.images import SilentImages
from gpurun.domain.errors import HubSilent, HubUnavailable, PinNotFound, RegistrySilent
from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import ImageRef, RepoName, Revision
from gpurun.domain.plan import ModelFile, ModelSpec
from gpurun.domain.run import FETCHED, FETCHING, Verdict
from gpurun.flow.facts import Links, gather
from gpurun.flow.keep_cache import keep_cache_for_ever, look_at_cache
from gpurun.http.run_view import run_view
from gpurun.ports.bytes import SaidBefore
from gpurun.report.comment import render_comment
from gpurun.report.facts import RunFacts
from gpurun.report.terminal import render_terminal, run_result
from gpurun.report.text import duration
from tests.fakes.cloud import MountingCloud, SlowCloud
from tests.fakes.rows import IMAGE
from tests.fakes.world import CONFIG, World

REVISION = Revision("d" * 40)
WITH_MODEL = CONFIG.replace("    limits:", f"    models:\n      - {{id: org/a, revision: {REVISION}}}\n    limits:")
FILES = (ModelFile(path="a", size=1000, sha256="c" * 64, etag="b" * 40),)


@pytest.fixture
def store_url(tmp_path):
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
def world(store, clock, chance):
    world = World(store, clock, chance)
    world.use(MountingCloud(clock, pulls=0))
    world.hub.models = {("org/a", REVISION): FILES}
    return world


async def test_nothing_is_created_before_all_bytes_are_there(world):
    world.hub.missing_bytes = [1000, 570, 0]
    await world.start(config_text=WITH_MODEL)
    seen = []
    while not world.cloud.book:
        await world.beat()
        seen += [attempt.preparing for attempt in await world.the_attempts()]
        world.clock.advance(seconds=0.1)
    assert list(dict.fromkeys(filter(None, seen))) == [
        "downloading weights 0 % of 1.0 kB",
        "downloading weights 43 % of 1.0 kB",
        "verifying weights",
    ]
    (attempt,) = await world.the_attempts()
    assert world.cloud.book[0].launch.weights == "/cache/views/v"
    assert world.hub.uses == {attempt.id: attempt.hard_deadline}
    await world.run_until_over()
    await world.expect(Verdict.PASSED)
    assert world.hub.uses == {}


async def test_image_and_weights_come_side_by_side(world, clock):
    world.use(MountingCloud(clock, pulls=2))
    world.hub.missing_bytes = [500, 400, 100]
    await world.start(config_text=WITH_MODEL)
    await world.beat()
    (attempt,) = await world.the_attempts()
    assert attempt.preparing == "pulling image, 1 to go, downloading weights 50 % of 1.0 kB"


async def facts_of(world: World) -> RunFacts:
    run = await world.the_run()
    return await world.store.read(lambda tx: gather(tx, run.id, Links()))


async def test_the_time_of_a_download_is_told_as_that_of_the_models(world):
    """Not as that of the boot; and all times together are that of the run."""
    world.hub.missing_bytes = [1000] * 40
    await world.start(config_text=WITH_MODEL)
    while not world.cloud.book:
        await world.beat()
        world.clock.advance(seconds=1)
    (attempt,) = await world.the_attempts()
    times = attempt.phase_times
    assert times[FETCHED] - times[FETCHING] >= timedelta(seconds=39)
    await world.run_until_over()
    await world.expect(Verdict.PASSED)
    facts = await facts_of(world)
    lasted = run_result(facts).times_s
    assert lasted["models"] >= 39
    assert lasted["boot"] <= 5
    (attempt,) = facts.attempts
    assert sum(lasted.values()) == pytest.approx((attempt.gone_at - facts.run.created_at).total_seconds(), abs=3)
    assert f"models {duration(lasted['models'])}" in render_terminal(facts).table
    assert duration(lasted["models"]) in render_comment(facts)
    page = run_view(facts.run, facts.attempts, attempt, artifacts=(), summary=None, now=world.clock.now())
    assert {"fetching weights", "weights ready", "created"} == {step.name for step in page.steps[:3]}


async def test_a_download_that_fails_took_its_time(world):
    await world.start(config_text=WITH_MODEL)
    world.hub.missing_bytes = [1000] * 100
    for _ in range(20):
        await world.beat()
        world.clock.advance(seconds=1)
    world.hub.errors = [PinNotFound("a of org/a: the hub's list says sha256 cc, the bytes have dd.")]
    await world.run_until_over()
    await world.expect(Verdict.FAILED, "weights_mismatch")
    lasted = run_result(await facts_of(world)).times_s
    assert set(lasted) == {"plan and queue", "models"}
    assert lasted["models"] >= 19


async def test_who_has_all_weights_waits_for_none(world):
    await world.start(config_text=WITH_MODEL)
    await world.run_until_over()
    (attempt,) = await world.the_attempts()
    assert not {FETCHING, FETCHED} & set(attempt.phase_times)


async def test_a_wrong_file_fails_the_run_and_nothing_was_rented(world):
    await world.start(config_text=WITH_MODEL)
    world.hub.missing_bytes = [1000] * 3
    await world.beat()
    world.hub.errors = [PinNotFound("a of org/a: the hub's list says sha256 cc, the bytes have dd.")]
    await world.run_until_over()
    run = await world.expect(Verdict.FAILED, "weights_mismatch")
    assert "the bytes have dd" in run.detail
    assert (run.attempts, world.cloud.book, world.hub.uses) == (1, [], {})


async def test_a_silent_hub_is_asked_again(world):
    await world.start(config_text=WITH_MODEL)
    world.hub.missing_bytes = [1000] * 2
    await world.beat()
    world.hub.errors = [HubUnavailable("503")] * 3
    await world.run_until_over()
    await world.expect(Verdict.PASSED)


async def test_a_hub_that_stays_silent_loses_the_run(world):
    await world.start(config_text=WITH_MODEL)
    world.hub.missing_bytes = [1000] * 2
    await world.beat()
    world.hub.errors = [HubUnavailable("The hub is silent.")] * 500
    await world.run_until_over()
    run = await world.expect(Verdict.LOST)
    assert "The hub is silent." in run.detail
    assert not world.cloud.book


async def test_who_does_not_mount_is_not_waited_for(world, clock):
    world.use(SlowCloud(clock))
    await world.start(config_text=WITH_MODEL)
    await world.run_until_over()
    await world.expect(Verdict.PASSED)
    assert world.cloud.book[0].launch.weights == ""


async def test_a_use_that_a_dead_process_left_is_forgotten_and_a_strange_one_is_not(world, store):
    await world.start(config_text=WITH_MODEL)
    await world.run_until_over()
    (attempt,) = await world.the_attempts()
    stranger = "0" * 26
    world.hub.uses = {attempt.id: attempt.hard_deadline, stranger: attempt.hard_deadline}
    await look_at_cache(store, world.hub)
    assert set(world.hub.uses) == {stranger}


async def test_a_disk_that_is_full_does_not_end_the_loop(world, store, clock, monkeypatch):
    failures = [OSError("No space left on device")]
    tidied = []

    async def tidy(over=()):
        if failures:
            raise failures.pop()
        tidied.append(over)

    monkeypatch.setattr(world.hub, "tidy", tidy)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_cache_for_ever, store, clock, world.hub)
            while not tidied:
                clock.advance(minutes=10)
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()


async def test_a_silent_hub_is_answered_for_by_what_it_said_before(world):
    pin = ModelSpec(id="org/a", revision=REVISION, refs=("main", REVISION)).with_files(FILES)
    world.hub.said_before = {("org/a", REVISION): SaidBefore(pin, "2026-11-30")}
    world.hub.errors = [HubSilent("127.0.0.1 cannot be reached.")]
    await world.start(config_text=WITH_MODEL)
    await world.run_until_over()
    run = await world.expect(Verdict.PASSED)
    note = "The hub is silent and was not asked for org/a: its files are those that it named on 2026-11-30."
    assert run.notes == (note,)


@pytest.mark.parametrize("answer", [PinNotFound("Access to org/a is restricted."), HubUnavailable("429")])
async def test_a_hub_that_answers_decides(world, answer):
    """A no is a no, and who is asked to wait waits."""
    pin = ModelSpec(id="org/a", revision=REVISION, refs=("main", REVISION)).with_files(FILES)
    world.hub.said_before = {("org/a", REVISION): SaidBefore(pin, "2026-11-30")}
    world.hub.errors = [answer]
    await world.start(config_text=WITH_MODEL)
    await world.run_until_over()
    run = await world.the_run()
    assert run.notes == ()
    assert run.verdict is (Verdict.REFUSED if isinstance(answer, PinNotFound) else Verdict.PASSED)


async def test_a_hub_that_was_never_asked_is_waited_for(world):
    world.hub.errors = [HubSilent("127.0.0.1 cannot be reached.")] * 2
    await world.start(config_text=WITH_MODEL)
    await world.run_until_over()
    run = await world.expect(Verdict.PASSED)
    assert run.notes == ()


SECOND = "01kdrun0000000000000000002"


@pytest.mark.parametrize("has_it", [True, False])
async def test_a_silent_registry_is_not_needed_for_a_commit_that_ran_here(world, clock, has_it):
    world.use(KeepingCloud(clock, has_it=has_it))
    registry, world.images = world.images, SilentImages(world.images, [world.cloud])
    world.restart()
    await world.start()
    await world.run_until_over()
    clock.advance(days=2)
    day = (await world.the_run()).created_at.date().isoformat()
    told = (
        f"The registry of {IMAGE.name} is silent and was not asked: it confirmed the image on {day}, and fake has it "
        "by its digest."
    )
    for number in (2, 3):  # the day stays that of the answer
        registry.errors = [RegistrySilent("The registry does not answer.")]
        run_id = f"{SECOND[:-1]}{number}"
        await world.start(run_id)
        await world.run_until_over()
        run = await world.the_run(run_id)
        assert (run.verdict, run.notes) == (Verdict.PASSED, (told,) if has_it else ())
        clock.advance(days=1)


async def test_what_another_repository_ran_says_nothing(world, clock):
    world.use(KeepingCloud(clock))
    registry, world.images = world.images, SilentImages(world.images, [world.cloud])
    world.restart()
    await world.start()
    await world.run_until_over()
    registry.errors = [RegistrySilent("The registry does not answer.")] * 500
    await world.start(SECOND, repo=RepoRef(installation_id=1, name=RepoName("octo/other"), id=8))
    await world.run_until_over()
    run = await world.the_run(SECOND)
    assert (run.verdict, run.notes) == (Verdict.LOST, ())


@dataclass
class KeepingCloud(MountingCloud):
    """`ports.provider.HasImages`, too."""

    pulls: int = 0
    has_it: bool = True

    async def platform_of(self, image: ImageRef) -> str | None:
        return "linux/amd64" if self.has_it else None
