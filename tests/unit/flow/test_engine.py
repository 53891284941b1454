from __future__ import annotations

import anyio
import pytest

from gpurun.domain.errors import ForgeRefused, HubUnavailable, RegistryUnavailable, SourceUnavailable
from gpurun.domain.repository import RepoFacts
from gpurun.domain.run import AttemptState, Phase, Result, ResultKind, RunState, Verdict
from gpurun.flow import failpoints
from gpurun.flow.engine_attempt import LAST_WORDS_BYTES
from gpurun.flow.worker import LEASE
from gpurun.plan.starter import short_starter
from gpurun.run.names import parse_name
from gpurun.run.tokens import claim_token, token_attempt
from tests.fakes.cloud import FakeCloud, SlowCloud, SmallCloud
from tests.fakes.parts import Script
from tests.fakes.rows import SHA, TREE
from tests.fakes.world import CONFIG, SECRET, World
from tests.unit.plan.starter.repositories import MONOREPO, PACKAGE, facts_of

NEVER_CLAIMS = Script(claims=False)


@pytest.fixture
def store_url(tmp_path):
    """SQLite: the engine is the same on both, and `test_engine_faults` runs on both."""
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
def world(store, clock, chance):
    yield World(store, clock, chance)
    failpoints.disarm()


async def test_a_run_goes_from_planning_to_passed_and_leaves_nothing(world):
    await world.start()
    await world.run_for(seconds=20)
    run = await world.expect(Verdict.PASSED, "exit")
    assert run.plan.tree == TREE
    assert run.plan_digest.startswith("sha256:")
    assert run.result_key.startswith("sha256:")
    (attempt,) = await world.the_attempts()
    assert (attempt.state, attempt.result.kind) == (AttemptState.GONE, ResultKind.PASSED)
    assert [entry.kind for entry in await world.audit(f"attempt:{attempt.id}")] == [
        "attempt_chosen",
        "create_sent",
        "attempt_booting",
        "attempt_live",
        "attempt_destroying",
        "attempt_gone",
    ]
    assert len(world.cloud.book) == 1


async def test_the_launch_says_everything_once(world):
    await world.start()
    await world.run_for(seconds=1)
    launch = world.cloud.book[0].launch
    (attempt,) = await world.the_attempts()
    assert launch.name == attempt.name
    named = parse_name(launch.name)
    assert (named.attempt_id, named.hard_deadline) == (attempt.id, attempt.hard_deadline)
    assert launch.env == {
        "GPURUN_ATTEMPT": attempt.id,
        "GPURUN_DEADLINE": str(int(attempt.hard_deadline.timestamp())),
        "GPURUN_SHA256": "b" * 64,
        "GPURUN_AGENT": "/gpurun/agent.pyz",
        "GPURUN_UPLINK": "unix:/gpurun/s/bot.sock",
    }
    token = launch.claim_token.get_secret_value()
    assert token_attempt(token) == attempt.id
    assert token not in repr(launch)
    assert token not in str(await world.the_attempts())


async def test_the_image_is_prepared_before_create(world, clock):
    world.use(SlowCloud(clock))
    await world.start()
    seen = []
    world.cloud.fail("prepare", "unavailable")
    for _ in range(6):
        await world.run_for(seconds=1)
        seen += [attempt.preparing for attempt in await world.the_attempts()]
        assert not world.cloud.book or world.cloud.pulls < 0
    await world.run_until_over()
    await world.expect(Verdict.PASSED)


async def test_an_image_that_cannot_be_prepared_is_not_tried_twice(world, clock):
    world.use(SlowCloud(clock))
    world.cloud.fail("prepare", "invalid")
    await world.start()
    await world.run_for(seconds=60)
    run = await world.expect(Verdict.LOST, "invalid")
    assert run.attempts == 1
    assert not world.cloud.book


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        (None, "config", 1),
        ("version: 1\njobs:\n  smoke: {imag: x}\n", "config", 3),
        (CONFIG.replace("smoke:", "other:"), "config", 1),
    ],
)
async def test_a_broken_file_is_refused_with_its_line(world, text, reason, line):
    await world.start(config_text=text)
    await world.run_for(seconds=1)
    run = await world.expect(Verdict.REFUSED, reason)
    assert run.error_line == line
    assert run.detail


async def test_without_a_file_the_refusal_holds_one_to_begin_with(world):
    world.git.facts = facts_of(PACKAGE)
    await world.start(config_text=None)
    await world.run_for(minutes=5)
    run = await world.expect(Verdict.REFUSED, "config")
    assert run.pins.starter == short_starter(facts_of(PACKAGE), "smoke")
    assert "pytest -q tests" in run.pins.starter
    assert world.git.looks == 1


@pytest.mark.parametrize("trouble", ["git", "forge", "refused", "gone"])
async def test_a_file_to_begin_with_is_general_when_nobody_can_look(world, trouble):
    world.git.facts = facts_of(PACKAGE)
    match trouble:
        case "git":
            world.git.errors.append(SourceUnavailable("git is away"))
        case "forge":
            world.forge.errors.append(SourceUnavailable("the forge is away"))
        case "refused":
            world.forge.errors.append(ForgeRefused("no", status=403))
        case _:
            world.git.trees.clear()
    await world.start(config_text=None)
    await world.run_for(minutes=5)
    run = await world.expect(Verdict.REFUSED, "config")
    assert run.pins.starter == short_starter(RepoFacts(), "smoke")
    assert world.git.looks == 0


async def test_a_token_in_the_repository_is_in_no_file_to_begin_with(world):
    token = "ghp_" + "a1B2" * 9
    world.git.facts = facts_of({"Dockerfile": f"FROM python:3.11-{token}\n", "demo.py": ""})
    await world.start(config_text=None)
    await world.run_for(seconds=5)
    run = await world.expect(Verdict.REFUSED, "config")
    assert token not in run.pins.starter
    assert run.pins.starter.startswith("version: 1\n")


async def test_a_folder_without_a_file_gets_one_for_itself(world):
    world.git.facts = facts_of(MONOREPO)
    await world.start(config_text=None, folder="services/api")
    await world.run_for(seconds=5)
    run = await world.expect(Verdict.REFUSED, "config")
    assert "workdir" not in run.pins.starter
    assert "pytest -q tests" in run.pins.starter


async def test_a_broken_file_gets_no_other(world):
    await world.start(config_text="version: 1")
    await world.run_for(seconds=5)
    run = await world.expect(Verdict.REFUSED, "config")
    assert (run.pins.starter, world.git.looks) == ("", 0)


async def test_a_pin_that_does_not_exist_is_refused(world):
    world.images.known.clear()
    await world.start()
    await world.run_for(seconds=1)
    run = await world.expect(Verdict.REFUSED, "pin")
    assert "registry has no" in run.detail
    assert run.pins.tree == TREE


async def test_pins_are_resolved_side_by_side_and_what_went_well_stays(world):
    met = [anyio.Event(), anyio.Event()]
    fetch, confirm = world.git.fetch, world.images.confirm

    async def meet(mine, other):
        met[mine].set()
        await met[other].wait()

    async def meeting_fetch(*words, **more):
        await meet(0, 1)
        return await fetch(*words, **more)

    async def meeting_confirm(*words, **more):
        await meet(1, 0)
        return await confirm(*words, **more)

    world.git.fetch, world.images.confirm = meeting_fetch, meeting_confirm
    world.images.errors = [RegistryUnavailable("429")]
    await world.start()
    with anyio.fail_after(5):
        await world.worker.step_until_idle()
    run = await world.the_run()
    assert (run.state, run.pins.tree, run.last_error) == (RunState.PLANNING, TREE, "429")
    world.git.trees.clear()  # nobody asks again
    await world.run_for(seconds=40, beats=40)
    await world.expect(Verdict.PASSED)


async def test_what_no_try_would_mend_is_told_though_something_else_is_down(world):
    world.git.errors = [SourceUnavailable("git is down")]
    world.images.known.clear()
    await world.start()
    await world.worker.step_until_idle()
    await world.expect(Verdict.REFUSED, "pin")


async def test_an_attempt_stays_with_the_worker_that_chose_its_offer(world):
    await world.start()
    failpoints.arm("run.offers.after", lambda: failpoints.arm("run.settle.after", "raise"))
    with pytest.raises(failpoints.Crash):
        await world.worker.step_until_idle()
    world.restart()
    await world.worker.step_until_idle()
    (attempt,) = await world.the_attempts()
    assert (attempt.state, world.uplinks.open_now) == (AttemptState.CHOSEN, set())  # leased by the dead
    world.clock.advance(seconds=LEASE.total_seconds() + 1)
    await world.run_for(seconds=20)
    await world.expect(Verdict.PASSED)
    assert len(await world.the_attempts()) == 1


async def test_planning_outlives_outages_and_keeps_what_it_has(world):
    world.git.errors = [SourceUnavailable("git is down"), SourceUnavailable("git is down", retry_after_s=30)]
    world.images.errors = [RegistryUnavailable("429")]
    await world.start()
    await world.run_for(seconds=20)
    assert (await world.the_run()).state is RunState.PLANNING
    await world.run_for(seconds=40)
    await world.expect(Verdict.PASSED)


async def test_planning_that_never_succeeds_is_lost_after_ten_minutes(world):
    world.git.errors = [SourceUnavailable("git is down")] * 1000
    await world.start()
    await world.run_for(minutes=12)
    run = await world.expect(Verdict.LOST, "resolve")
    assert run.detail == "git is down"


async def test_a_forge_that_refuses_the_source_is_lost_at_once(world):
    world.forge.errors = [ForgeRefused("The App is suspended.", status=403)]
    await world.start()
    await world.run_for(seconds=1)
    await world.expect(Verdict.LOST, "resolve")


async def test_models_are_pinned_one_by_one(world):
    revision = "d" * 40
    text = CONFIG.replace("    limits:", f"    models:\n      - {{id: org/a, revision: {revision}}}\n    limits:")
    world.hub.models = {("org/a", revision): ()}
    world.hub.errors = [HubUnavailable("503")]
    await world.start(config_text=text)
    await world.run_for(seconds=40, beats=40)
    run = await world.expect(Verdict.PASSED)
    assert [pin.id for pin in run.plan.models] == ["org/a"]


async def test_a_failed_job_is_failed(world):
    world.agents.script = Script(result=Result(kind=ResultKind.FAILED, exit_code=3, reason="exit", detail="exit 3"))
    await world.start()
    await world.run_for(seconds=20)
    run = await world.expect(Verdict.FAILED, "exit")
    assert run.detail == "exit 3"


async def test_no_offer_for_fifteen_minutes_is_no_capacity(world):
    world.cloud.stock = 0
    await world.start()
    await world.run_for(minutes=14)
    assert (await world.the_run()).state is RunState.QUEUED
    await world.run_for(minutes=2)
    await world.expect(Verdict.LOST, "no_capacity")


WITH_GPU = CONFIG + "    resources:\n      gpu: 1\n"


async def test_what_no_machine_will_ever_have_is_refused_at_once(world, clock):
    world.use(SmallCloud(clock))
    world.cloud.fail("why_never", "unavailable")
    await world.start(config_text=WITH_GPU)
    await world.run_for(seconds=10)
    run = await world.expect(Verdict.REFUSED, "hardware")
    assert run.detail.startswith("fake has 0 GPUs. Ask for less under `resources`")
    assert WITH_GPU.splitlines()[run.error_line - 1].strip() == "resources:"
    assert run.attempts == 0


async def test_a_job_that_fits_is_not_refused_for_want_of_stock(world, clock):
    world.use(SmallCloud(clock, gpus=1, stock=0))
    await world.start(config_text=WITH_GPU)
    await world.run_for(minutes=1)
    assert (await world.the_run()).state is RunState.QUEUED
    world.cloud.stock = 1
    await world.run_until_over()
    await world.expect(Verdict.PASSED)


async def test_one_provider_that_may_have_it_later_is_waited_for(world, clock):
    world.use(SmallCloud(clock))
    world.add(FakeCloud(clock, name="other", stock=0))
    await world.start(config_text=WITH_GPU)
    await world.run_for(minutes=1)
    assert (await world.the_run()).state is RunState.QUEUED


async def test_places_are_never_exceeded_and_waiting_is_not_lost(world):
    world.slots["fake"] = 2
    world.agents.script = Script(works_s=60)
    ids = [await world.start(f"01kdrun000000000000000000{number}") for number in range(5)]
    await world.run_until_over()
    runs = [await world.the_run(run_id) for run_id in ids]
    assert {run.verdict for run in runs} == {Verdict.PASSED}
    assert world.cloud.most_at_once == 2


async def test_a_place_is_free_only_when_the_end_is_confirmed(world):
    world.slots["fake"] = 1
    world.cloud.break_down("destroy", "not_yet")
    first, second = await world.start(), await world.start("01kdrun0000000000000000002")
    await world.run_for(minutes=20)
    ended = {first: await world.the_run(first), second: await world.the_run(second)}
    assert sorted(run.state for run in ended.values()) == [RunState.ENDED, RunState.QUEUED]
    world.cloud.repair()
    await world.run_until_over()
    assert world.cloud.most_at_once == 1


async def test_an_instance_that_never_claims_is_lost_and_tried_once_more(world):
    world.agents.script = NEVER_CLAIMS
    await world.start()
    await world.run_for(minutes=9)
    assert len(world.cloud.book) == 1
    await world.run_for(minutes=20)
    run = await world.expect(Verdict.LOST, "boot_timeout")
    assert run.attempts == 2
    assert world.cloud.most_at_once == 1


async def test_the_second_attempt_may_pass(world):
    world.agents.scripts = [NEVER_CLAIMS]
    await world.start()
    await world.run_until_over()
    run = await world.expect(Verdict.PASSED)
    assert run.attempts == 2


async def test_an_image_without_python_is_the_users_fault(world):
    world.agents.script = NEVER_CLAIMS
    world.cloud.observe_every_s = 2
    await world.start()
    await world.run_for(seconds=1)
    instance = world.cloud.book[0]
    marker = f"::gpurun-boot 1 {instance.launch.attempt_id} error no-python3\n"
    world.cloud.exit(instance, log=b"noise\n" + marker.encode())
    await world.run_for(seconds=10)
    run = await world.expect(Verdict.FAILED, "no_python")
    assert "There is no python3 in the image" in run.detail


async def test_the_last_output_of_a_dead_instance_is_told(world):
    world.agents.script = NEVER_CLAIMS
    world.cloud.observe_every_s = 2
    await world.start()
    await world.run_for(seconds=1)
    world.cloud.exit(world.cloud.book[0], log=b"pulling\nexec format error\n\n")
    await world.run_for(seconds=5)
    (attempt, *_) = await world.the_attempts()
    assert attempt.result.reason == "boot"
    assert attempt.result.detail.endswith("Its last output: exec format error")


async def test_the_last_output_holds_no_secret(world):
    world.agents.script = NEVER_CLAIMS
    world.cloud.observe_every_s = 2
    await world.start()
    await world.run_for(seconds=1)
    (attempt, *_) = await world.the_attempts()
    token = claim_token(SECRET, attempt.id)
    world.cloud.exit(world.cloud.book[0], log=f"refused: {token}\n".encode())
    await world.run_for(seconds=5)
    (attempt, *_) = await world.the_attempts()
    assert attempt.result.detail.endswith("Its last output: refused: " + "*" * len(token))


async def test_a_last_line_whose_beginning_is_missing_is_not_told(world):
    """It may begin inside of a secret."""
    world.agents.script = NEVER_CLAIMS
    world.cloud.observe_every_s = 2
    await world.start()
    await world.run_for(seconds=1)
    (attempt, *_) = await world.the_attempts()
    token = claim_token(SECRET, attempt.id)
    world.cloud.exit(world.cloud.book[0], log=f"{token[5:]} {'x' * LAST_WORDS_BYTES}".encode()[:LAST_WORDS_BYTES])
    await world.run_for(seconds=5)
    (attempt, *_) = await world.the_attempts()
    assert token[5:20] not in attempt.result.detail
    assert "Its last output" not in attempt.result.detail


async def test_logs_that_fail_do_not_delay_the_end(world):
    world.agents.script = NEVER_CLAIMS
    world.cloud.break_down("logs", "unavailable")
    world.cloud.observe_every_s = 2
    await world.start()
    await world.run_for(seconds=1)
    world.cloud.exit(world.cloud.book[0])
    await world.run_for(seconds=4)
    assert not world.cloud.book[0].alive


async def test_a_job_longer_than_max_duration_is_stopped_and_timed_out(world):
    world.agents.script = Script(result=None)
    await world.start()
    await world.run_for(minutes=29)
    assert (await world.the_run()).state is RunState.ACTIVE
    await world.run_for(minutes=2)
    await world.expect(Verdict.TIMEOUT)


async def test_a_job_that_does_not_obey_is_timed_out_thirty_seconds_later(world):
    world.agents.script = Script(result=None, obeys=False)
    await world.start()
    await world.run_for(minutes=31)
    run = await world.expect(Verdict.TIMEOUT, "max_duration")
    (attempt,) = await world.the_attempts()
    assert (run.ended_at - attempt.stop_asked_at).total_seconds() == pytest.approx(30, abs=2)


async def test_silence_and_a_provider_that_does_not_say_running_is_lost(world):
    world.agents.script = Script(talks=False, result=None)
    await world.start()
    await world.run_for(minutes=10)
    assert (await world.the_run()).state is RunState.ACTIVE  # the provider says that it runs
    world.cloud.vanish(world.cloud.book[0])
    await world.run_for(minutes=1)
    await world.expect(Verdict.LOST, "host")


async def test_an_instance_that_goes_before_it_was_ever_listed_is_missed_at_once_where_lists_are_never_late(world):
    world.agents.script = Script(works_s=600)
    world.cloud.observe_every_s, world.cloud.listed_within_s = 20, 0
    await world.start()
    await world.run_for(seconds=8)
    assert (await world.the_attempts())[0].observed_at is None
    world.cloud.vanish(world.cloud.book[0])
    await world.run_for(seconds=45)
    await world.expect(Verdict.LOST, "host")


async def test_a_late_list_says_nothing_of_an_instance_that_it_never_held(world):
    world.agents.script = Script(works_s=100)
    world.cloud.observe_every_s, world.cloud.list_lag_s = 2, 170
    await world.start()
    await world.run_for(seconds=300)
    await world.expect(Verdict.PASSED)


async def test_an_instance_that_vanishes_in_the_job_is_lost_and_not_repeated(world):
    world.agents.script = Script(dies_in=None, result=None)
    await world.start()
    await world.run_for(minutes=2)
    world.cloud.vanish(world.cloud.book[0])
    await world.run_for(minutes=1)
    run = await world.expect(Verdict.LOST, "host")
    assert run.attempts == 1


async def test_an_instance_that_dies_before_the_job_is_replaced(world):
    world.agents.scripts = [Script(dies_in=Phase.WEIGHTS)]
    await world.start()
    await world.run_until_over()
    run = await world.expect(Verdict.PASSED)
    assert run.attempts == 2


CANCEL_AT = {
    "planning": lambda world: world.git.errors.extend([SourceUnavailable("down")] * 3),
    "queued": lambda world: setattr(world.cloud, "stock", 0),
    "chosen": lambda world: world.use(SlowCloud(world.clock, pulls=1000)),
    "looking": lambda world: world.cloud.fail("create", "lost_unmade"),
    "booting_found": lambda world: (
        world.cloud.fail("create", "lost"),
        setattr(world.agents, "script", NEVER_CLAIMS),
    ),
    "booting": lambda world: setattr(world.agents, "script", NEVER_CLAIMS),
    "live": lambda world: setattr(world.agents, "script", Script(result=None)),
    "live_deaf": lambda world: setattr(world.agents, "script", Script(result=None, obeys=False)),
}


@pytest.mark.parametrize("where", CANCEL_AT)
async def test_a_cancel_ends_the_run_in_every_state(world, where):
    CANCEL_AT[where](world)
    await world.start()
    await world.run_for(seconds={"looking": 1, "booting_found": 6}.get(where, 5), beats=5)
    before = await world.the_run()
    assert before.state is not RunState.ENDED
    attempts = await world.the_attempts()
    assert where.partition("_")[0] in (before.state, *(attempt.state for attempt in attempts))
    await world.cancel()
    await world.run_for(seconds=35)
    assert (await world.the_run()).verdict is Verdict.CANCELLED
    await world.run_until_over()
    run = await world.expect(Verdict.CANCELLED, "asked")
    assert run.attempts <= 1


async def test_a_cancel_after_the_end_changes_nothing(world):
    await world.start()
    await world.run_for(seconds=20)
    await world.cancel()
    await world.run_for(minutes=5)
    run = await world.expect(Verdict.PASSED)
    assert run.cancel_at is None


async def test_progress_is_shown_and_the_end_is_final(world):
    run_id = await world.start()
    await world.run_for(seconds=1)
    (check,) = await world.store.read(lambda tx: tx.publications(run_id))
    assert check.desired_rev > 1
    assert not check.final
    await world.run_for(seconds=20)
    (after,) = await world.store.read(lambda tx: tx.publications(run_id))
    assert after.final
    assert after.desired_rev > check.desired_rev


async def test_the_commit_is_fetched_at_the_runs_sha(world):
    world.git.trees = {replace_last(SHA): TREE}
    await world.start()
    await world.run_for(seconds=1)
    await world.expect(Verdict.REFUSED, "pin")


def replace_last(sha):
    return type(sha)(sha[:-1] + "0")
