from dataclasses import replace
from datetime import timedelta

import pytest

from gpurun.domain.errors import Bug
from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import CommitSha, ImageRef, JobName, RepoName, Revision, TreeSha
from gpurun.domain.narrow import Narrow
from gpurun.domain.plan import ModelFile, ModelPin, Plan, Resources
from gpurun.domain.run import AttemptState, Fault, Pins, Quote, RunState, Untrusted, Verdict
from gpurun.ports.store import Kind
from tests.fakes.clock import START
from tests.unit.adapters.store.samples import REPO, SHA, a_run, an_attempt, claim, claim_one

MODEL = ModelPin(
    id="org/tiny",
    revision=Revision("b" * 40),
    files=(ModelFile(path="model.safetensors", size=3, sha256="d" * 64, etag="d" * 64),),
)
PLAN = Plan(
    repo=REPO.name,
    commit=SHA,
    tree=TreeSha("e" * 40),
    job=JobName("smoke"),
    image=ImageRef(f"python:3.12@sha256:{'f' * 64}"),
    run="python smoke.py",
    env=(("A", "1"),),
    models=(MODEL,),
    resources=Resources(gpus=1, cpus=1.5),
)
ENDED = a_run(
    base_sha=CommitSha("1" * 40),
    state=RunState.ENDED,
    state_since=START + timedelta(seconds=5),
    due_at=None,
    tries=2,
    last_error="slow",
    pins=Pins(tree=TreeSha("e" * 40), image_confirmed=True, models=(MODEL,)),
    plan=PLAN,
    plan_digest="9" * 64,
    result_key="8" * 64,
    attempts=1,
    verdict=Verdict.FAILED,
    reason="exit",
    detail="exit 3",
    error_line=4,
    faults=(Fault(file=".gpurun.yml", line=3, text="unknown key"),),
    notes=("a note",),
    max_attempts=3,
    folder="sub",
    policy_text="version: 1\n",
    base_ref="main",
    untrusted=Untrusted.FORK,
    quote=Quote(label="local Docker", usd_per_hour_micro=1_000_000, longest_s=3000, declared=True),
    narrow=Narrow(gpu="24GB", provider="docker", max_usd_micro=500_000, number=2, of=3, batch="batch-1"),
    ended_at=START + timedelta(seconds=5),
    cancel_at=START,
    cancel_by="bob",
    superseded_by="run-2",
    paused=True,
    approval="carol",
    also_asked=("dan",),
)


async def add(store, *runs):
    await store.write(lambda tx: [tx.add_run(run) for run in runs])


async def read(store, id="run-1"):
    return await store.read(lambda tx: tx.run(id))


@pytest.mark.parametrize(
    "run", [a_run(), ENDED, a_run(pr=None, comment_id=None, config_text=None), a_run(config_text="caf\udce9\x00")]
)
async def test_a_run_is_read_as_it_was_added(store, run):
    await add(store, run)
    assert await read(store) == run
    assert await read(store, "none") is None


async def test_a_second_run_of_the_same_id_is_a_bug_and_changes_nothing(store):
    await add(store, a_run())
    with pytest.raises(Bug):
        await add(store, a_run("run-2"), a_run(who="eve"))
    assert await store.read(lambda tx: tx.latest_runs(limit=9)) == (a_run(),)


async def test_saving_writes_what_the_engine_owns_and_nothing_else(store):
    asked = replace(a_run(), also_asked=("dan",), cancel_at=START, cancel_by="bob", paused=True)
    await add(store, asked)
    lease = await claim_one(store, Kind.RUN)
    stale = replace(ENDED, who="eve", also_asked=(), cancel_at=None, cancel_by="", superseded_by="", paused=False)
    assert await store.write(lambda tx: tx.save_run(stale, lease))
    expected = replace(
        ENDED,
        base_sha=None,
        also_asked=("dan",),
        cancel_at=START,
        cancel_by="bob",
        superseded_by="",
        paused=True,
        folder="",
        policy_text=None,
        base_ref="",
        untrusted=None,
        narrow=Narrow(),
    )
    assert await read(store) == expected


async def test_a_saved_run_is_due_when_it_says_so(store, clock):
    await add(store, a_run())
    lease = await claim_one(store, Kind.RUN)
    await store.write(lambda tx: tx.save_run(a_run(due_at=START + timedelta(seconds=30)), lease))
    assert await claim(store, Kind.RUN) == ()
    clock.advance(seconds=30)
    assert len(await claim(store, Kind.RUN)) == 1


async def test_live_runs_of_a_pull_request_are_found_oldest_first_also_after_a_rename(store):
    renamed = RepoRef(installation_id=7, name=RepoName("octo/renamed"), id=70)
    await add(
        store,
        a_run("newer", created_at=START + timedelta(seconds=1)),
        a_run("older"),
        replace(ENDED, id="ended"),
        a_run("other-pr", pr=2),
        a_run("other-repo", repo=RepoRef(installation_id=7, name=RepoName("octo/x"), id=71)),
    )
    runs = await store.read(lambda tx: tx.live_runs(renamed, 1))
    assert [run.id for run in runs] == ["older", "newer"]


async def test_runs_of_a_commit_include_ended_ones(store):
    await add(store, a_run(), replace(ENDED, id="ended"), a_run("other", sha=CommitSha("b" * 40)))
    runs = await store.read(lambda tx: tx.runs_of_commit("octo/models", SHA))
    assert [run.id for run in runs] == ["ended", "run-1"]


async def test_the_latest_runs_come_newest_first(store):
    await add(store, *(a_run(str(number), created_at=START + timedelta(seconds=number)) for number in range(4)))
    runs = await store.read(lambda tx: tx.latest_runs(limit=2))
    assert [run.id for run in runs] == ["3", "2"]


async def test_a_cancel_wakes_the_run_and_its_attempts(store, clock):
    later = START + timedelta(hours=1)
    await add(store, a_run(due_at=later), a_run("other", due_at=later))
    await store.write(lambda tx: tx.add_attempt(an_attempt(due_at=later)))
    await store.write(lambda tx: tx.add_attempt(an_attempt("over", number=2, due_at=None, state=AttemptState.VOID)))
    clock.advance(seconds=3)
    assert await store.write(lambda tx: tx.ask_cancel("run-1", "bob"))
    now = START + timedelta(seconds=3)
    assert await read(store) == a_run(due_at=now, cancel_at=now, cancel_by="bob")
    attempts = await store.read(lambda tx: tx.attempts("run-1"))
    assert [attempt.due_at for attempt in attempts] == [now, None]
    assert await read(store, "other") == a_run("other", due_at=later)


async def test_a_cancel_counts_once_and_only_before_the_end(store):
    await add(store, a_run(), replace(ENDED, id="ended", cancel_at=None))
    assert await store.write(lambda tx: tx.ask_cancel("run-1", "bob"))
    assert not await store.write(lambda tx: tx.ask_cancel("run-1", "carol"))
    assert not await store.write(lambda tx: tx.ask_cancel("ended", "bob"))
    assert not await store.write(lambda tx: tx.ask_cancel("none", "bob"))
    assert (await read(store)).cancel_by == "bob"


async def test_everybody_who_asked_for_the_same_is_remembered_once(store):
    await add(store, a_run())
    for who in ("bob", "carol", "bob"):
        await store.write(lambda tx, who=who: tx.also_asked("run-1", who))
    await store.write(lambda tx: tx.also_asked("none", "bob"))
    assert (await read(store)).also_asked == ("bob", "carol")


async def test_an_exception_takes_everything_back(store):
    class Stop(Exception):
        pass

    def fail(tx):
        tx.add_run(a_run())
        raise Stop

    with pytest.raises(Stop):
        await store.write(fail)
    assert await read(store) is None


async def test_a_row_that_has_not_changed_is_read_as_the_same_value(store):
    await store.write(lambda tx: tx.add_run(a_run()))
    first, again = [await store.read(lambda tx: tx.run(a_run().id)) for _ in range(2)]
    assert first is again
    await store.write(lambda tx: tx.ask_cancel(a_run().id, "ada"))
    assert (await store.read(lambda tx: tx.run(a_run().id))).cancel_by == "ada"
