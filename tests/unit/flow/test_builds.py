"""A job with a `build`: what planning reads and pins, and what an attempt does before create."""

from __future__ import annotations

import io
import tarfile

import anyio
import pytest
from pydantic import SecretStr

from gpurun.adapters.secrets import MemorySecrets
from gpurun.adapters.vault import GivenVault
from gpurun.domain.build import Building, BuildOutput, BuildPlan
from gpurun.domain.errors import BuildRefused, BuildUnavailable
from gpurun.domain.ids import ImageRef, ImageTag
from gpurun.domain.lock import ImagePin, Lock, LockedImage
from gpurun.domain.run import BUILDING, BUILT, AttemptState, Verdict
from gpurun.domain.stream import StreamName
from gpurun.flow.build import AGAIN, read_archive, tar_for_engine
from gpurun.flow.facts import Links, gather
from gpurun.flow.keep_builds import tidy_builds, tidy_builds_for_ever
from gpurun.http.log_view import read_piece
from gpurun.plan import dockerignore
from gpurun.plan.context import ContextReader
from gpurun.plan.lock import write_lock
from gpurun.report.comment import render_comment
from gpurun.report.terminal import render_terminal
from tests.fakes.cloud import BuildingCloud, FakeCloud, SlowCloud
from tests.fakes.rows import SHA
from tests.fakes.world import World
from tests.unit.plan.test_context import archive

BASE = "ghcr.io/org/base@sha256:" + "4" * 64
CONFIG = "version: 1\njobs:\n  smoke:\n    build: {args: {WORD: hi}}\n    run: python smoke.py\n"
TEXT = f"# made for us\nFROM {BASE}\nRUN make\nCOPY . /x\n"
RUN_ID = "01kdrun0000000000000000001"


@pytest.fixture
def store_url(tmp_path):
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
def world(store, clock, chance):
    world = World(store, clock, chance)
    world.git.archives = {SHA: commit()}
    world.images.known = {ImageRef(BASE)}
    world.use(BuildingCloud(clock, answers=[ready("said\n")]))
    return world


def commit(text: str = TEXT, **files: str) -> bytes:
    return archive(("Dockerfile", text.encode()), *((name, data.encode()) for name, data in files.items()))


def ready(said: str, *, id: str = "1") -> Building:
    return Building(ready=True, output=BuildOutput(id=id, said=said.encode(), took_s=2.0))


def going_on(said: str, *, id: str = "1", took_s: float | None = 1.0) -> Building:
    output = BuildOutput(id=id, said=said.encode(), over=False, took_s=took_s)
    return Building(message="building image, step 2/3", output=output)


async def log_of(world: World) -> bytes:
    (attempt, *_) = await world.the_attempts()
    return await world.store.read(lambda tx: tx.read_log(attempt.id, offset=0, max_bytes=10_000))


async def test_dockerfile_and_context_are_read_at_the_commit_and_go_to_the_provider(world):
    world.git.archives = {SHA: commit(**{"a.txt": "a", "b.md": "b", ".dockerignore": "*.md\n"})}
    await world.start(config_text=CONFIG)
    await world.run_until_over()
    run = await world.expect(Verdict.PASSED)
    assert run.plan is not None
    assert run.plan.build is not None
    assert (run.plan.image, run.plan.build.images) == (None, (BASE,))
    (build, launch, context), *_ = world.cloud.built
    assert (build, launch.image) == (run.plan.build, run.plan.container_image)
    assert dict(build.args) == {"WORD": "hi"}
    with tarfile.open(fileobj=io.BytesIO(context)) as tar:
        assert tar.getnames() == ["Dockerfile", "a.txt", ".gpurun.Dockerfile", ".dockerignore"]
        assert tar.extractfile(".gpurun.Dockerfile").read().decode() == TEXT
    assert world.cloud.book[0].launch.image == build.image


async def test_what_the_build_says_is_the_beginning_of_the_log(world):
    world.cloud.answers = [going_on("one\nt"), going_on("one\ntwo\n"), ready("one\ntwo\nthree\n")]
    await world.start(config_text=CONFIG)
    while not world.cloud.book:
        await world.beat()
        world.clock.advance(seconds=0.1)
    assert await log_of(world) == b"one\ntwo\nthree\n"
    (attempt,) = await world.the_attempts()
    await world.store.write(lambda tx: tx.append(attempt.id, StreamName.LOG, 0, b"of the job\n"))
    whole = b"one\ntwo\nthree\nof the job\n"
    for at in range(len(whole) + 1):
        piece = await world.store.read(lambda tx, at=at: read_piece(tx, RUN_ID, None, at))
        assert piece.data == whole[at:]
    facts = await world.store.read(lambda tx: gather(tx, RUN_ID, Links()))
    assert (facts.log_tail, facts.log_size) == (whole, len(whole))
    took = (attempt.phase_times[BUILT] - attempt.phase_times[BUILDING]).total_seconds()
    assert 0 < took <= 2
    await world.run_until_over()
    await world.expect(Verdict.PASSED)
    facts = await world.store.read(lambda tx: gather(tx, RUN_ID, Links()))
    assert " · build " in render_terminal(facts).table
    assert "| built of | `Dockerfile` |" in render_comment(facts)


async def test_secrets_are_masked_in_it_also_across_two_pieces(world):
    token = "ghp_" + "a1B2" * 9
    world.cloud.answers = [going_on(f"x {token[:9]}"), going_on(f"x {token[:20]}"), ready(f"x {token}\n")]
    await world.start(config_text=CONFIG)
    await world.run_until_over()
    assert await log_of(world) == b"x " + b"*" * len(token) + b"\n"


async def test_a_build_that_fails_is_the_jobs_failure_and_nothing_is_rented(world):
    failed = Building(failed="make: not found", step=2, output=BuildOutput(id="1", said=b"boom\n", took_s=1.0))
    world.cloud.answers = [going_on("bo"), failed]
    await world.start(config_text=CONFIG)
    await world.run_until_over()
    run = await world.expect(Verdict.FAILED, "build")
    assert run.detail == "The build failed at step 2, line 3 of Dockerfile (`RUN make`): make: not found"
    assert (run.attempts, world.cloud.book) == (1, [])
    assert await log_of(world) == b"boom\n"
    facts = await world.store.read(lambda tx: gather(tx, RUN_ID, Links()))
    assert "boom" in render_comment(facts)


async def test_a_bot_that_begins_again_says_so_and_doubles_nothing_of_one_try(world):
    world.cloud.answers = [going_on("one\n"), going_on("one\ntwo\n")]
    await world.start(config_text=CONFIG)
    while b"two" not in await log_of(world) if await world.the_attempts() else True:
        await world.beat()
        world.clock.advance(seconds=0.1)
    world.restart()
    world.cloud.answers = [going_on("one\n", id="2"), ready("one\ntwo\nthree\n", id="2")]
    await world.run_until_over()
    assert await log_of(world) == b"one\ntwo\n" + AGAIN + b"one\ntwo\nthree\n"


async def test_nothing_is_appended_when_the_agent_may_have_begun(world):
    world.cloud.answers = [going_on("one\n")]
    await world.start(config_text=CONFIG)
    while not await world.the_attempts() or not await log_of(world):
        await world.beat()
        world.clock.advance(seconds=0.1)
    await world.cancel()
    world.cloud.answers = [ready("one\ntwo\n")]
    await world.run_until_over()
    (attempt,) = await world.the_attempts()
    assert attempt.state is AttemptState.VOID
    assert await log_of(world) == b"one\n"


@pytest.mark.parametrize(
    ("kind", "reason", "attempts"), [("auth", "auth", 1), ("invalid", "invalid", 1), ("capacity", "no_capacity", 2)]
)
async def test_images_that_cannot_be_pulled_are_as_for_other_jobs(world, kind, reason, attempts):
    world.cloud.break_down("build", kind)
    await world.start(config_text=CONFIG)
    await world.run_until_over()
    run = await world.expect(Verdict.LOST, reason)
    assert run.attempts == attempts


async def test_an_engine_that_does_not_answer_is_asked_again(world):
    world.cloud.fail("build", "unavailable", "unavailable")
    await world.start(config_text=CONFIG)
    await world.run_until_over()
    await world.expect(Verdict.PASSED)


async def test_who_cannot_build_is_not_offered_the_job(world, clock):
    world.use(SlowCloud(clock))
    await world.start(config_text=CONFIG)
    await world.run_until_over()
    run = await world.expect(Verdict.REFUSED, "build")
    assert run.detail.startswith("The job has a `build`, and fake cannot build images. Push the image")
    assert not await world.the_attempts()


async def test_of_two_the_one_that_builds_is_taken(world, clock):
    world.add(FakeCloud(clock, name="cheap", usd_per_hour_micro=1))
    world.slots["cheap"] = 5
    await world.start(config_text=CONFIG)
    await world.run_until_over()
    await world.expect(Verdict.PASSED)
    assert world.more["cheap"].book == []


@pytest.mark.parametrize(
    ("config", "text", "told"),
    [
        (CONFIG, "FROM x\nADD https://e.org/x /\n", "`Dockerfile`, line 2: `ADD https://e.org/x` may bring in"),
        (CONFIG, "FROM python:3.12\n", "The image python:3.12 is not pinned, and can move."),
        (CONFIG, "FROM python:3.12\n", "what cannot move: `FROM python@sha256:<digest>` in the Dockerfile (`docker"),
        (
            CONFIG.replace("args: {WORD: hi}", "dockerfile: d/x"),
            TEXT,
            "There is no file 'd/x' in the repository. `build: {dockerfile: …}` names it",
        ),
        (CONFIG.replace("args: {WORD: hi}", "context: ../x"), TEXT, "'../x' leads out of the repository"),
        (
            CONFIG.replace("args: {WORD: hi}", "dockerfile: Dockerfile, context: no"),
            TEXT,
            "There is no folder 'no' in the repository. `build: {context: …}` names it",
        ),
        (
            CONFIG.replace("args: {WORD: hi}", "target: gpu"),
            TEXT,
            "`Dockerfile`, line 1: there is no stage 'gpu'. `target` is",
        ),
    ],
)
async def test_what_cannot_be_built_is_refused_before_anything_is_rented(world, config, text, told):
    world.git.archives = {SHA: commit(text)}
    await world.start(config_text=config)
    await world.run_until_over()
    run = await world.expect(Verdict.REFUSED)
    assert told in run.detail
    if "`build" in run.detail or "leads out" in run.detail:
        assert run.error_line == 4


@pytest.mark.parametrize("kind", ["capacity", None])
async def test_the_last_words_of_a_build_that_ended_without_an_answer_are_in_the_log(world, kind):
    last = BuildOutput(id="1", said=b"one\nno space left\n", took_s=1.0)
    error = BuildRefused("full", kind=kind, output=last) if kind else BuildUnavailable("gone", output=last)
    world.cloud.answers = [going_on("one\n"), error, ready("again\n", id="2")]
    await world.start(config_text=CONFIG)
    await world.run_until_over()
    run = await world.expect(Verdict.PASSED)
    ids = [one.id for one in await world.the_attempts()]
    logs = await world.store.read(lambda tx: [tx.read_log(one, offset=0, max_bytes=10_000) for one in ids])
    first = b"one\nno space left\n"
    assert sorted(logs) == sorted([first, b"again\n"] if kind else [first + AGAIN + b"again\n"])
    assert run.attempts == len(logs)


async def test_a_dockerignore_that_takes_too_long_is_refused_at_the_jobs_build(world, monkeypatch):
    monkeypatch.setattr(dockerignore, "MAX_WORK", 100)
    world.git.archives = {SHA: commit(**{".dockerignore": "*.md\n"})}
    await world.start(config_text=CONFIG)
    await world.run_until_over()
    run = await world.expect(Verdict.REFUSED)
    assert "`.dockerignore` has too many patterns for so many paths" in run.detail
    assert run.error_line == 4


async def test_an_archive_that_breaks_off_or_is_not_wanted_any_more_is_closed():
    closed: list[str] = []

    async def pieces(name: str):
        try:
            yield commit()
            yield b"x" * 512
        finally:
            closed.append(name)

    with pytest.raises(ValueError, match="invalid literal"):
        await read_archive(pieces("read"), ContextReader(dockerfile="Dockerfile", context=""))
    assert closed == ["read"]
    made = tar_for_engine(build_plan(), pieces("sent"))
    assert await anext(made)
    await made.aclose()
    assert closed == ["read", "sent"]


def build_plan() -> BuildPlan:
    return BuildPlan(inputs_sha256="5" * 64, dockerfile="Dockerfile", context="", text=TEXT, context_sha256="6" * 64)


async def test_the_lock_pins_what_the_dockerfile_names_and_the_policy_allows_it(world):
    tag = ImageTag("ghcr.io/org/base:1")
    pin = ImagePin(digest="sha256:" + "4" * 64)
    world.git.archives = {SHA: commit(f"FROM {tag}\n")}
    lock = Lock(images=(LockedImage(ref=tag, pin=pin, locked_on="2026-12-01"),))
    world.forge.files = {".gpurun.lock": write_lock(lock).encode()}
    world.images.known = {ImageRef(f"{tag}@{pin.digest}")}
    await world.start(config_text=CONFIG)
    await world.run_until_over()
    run = await world.expect(Verdict.PASSED)
    assert run.plan.build.text == f"FROM ghcr.io/org/base@{pin.digest}\n"
    second = await world.start(
        "01kdrun0000000000000000002", config_text=CONFIG, policy_text="policy: {images: [docker.io/*]}\n"
    )
    await world.run_until_over()
    other = await world.the_run(second)
    assert (other.verdict, other.reason) == (Verdict.REFUSED, "policy")
    assert "The image ghcr.io/org/base:1 is not allowed here" in other.detail


async def test_a_login_goes_with_its_registry(world):
    world.vault = GivenVault({"TOKEN": SecretStr("s3cret-of-the-registry")}, MemorySecrets())
    world.restart()
    login = CONFIG.replace("    run", "    registry: {username: ci, password: TOKEN, server: docker.io}\n    run")
    await world.start(config_text=login)
    await world.run_until_over()
    await world.expect(Verdict.PASSED)
    assert world.images.logins == [None]
    (_, launch, _), *_ = world.cloud.built
    assert launch.login.is_for("python:3.12")
    assert not launch.login.is_for(BASE)


async def test_images_are_tidied_and_an_engine_in_trouble_does_not_end_that(world, clock):
    cloud = world.cloud
    await tidy_builds([cloud, FakeCloud(clock)])
    assert cloud.tidied == 1
    cloud.fail("tidy", "unavailable")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tidy_builds_for_ever, [cloud], clock)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
            clock.advance(seconds=3600)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert cloud.tidied >= 2
