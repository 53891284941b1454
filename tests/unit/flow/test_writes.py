"""How often GitHub is written to for one run: 400 an hour are all that an installation has."""

from __future__ import annotations

from collections import Counter

import pytest

from gpurun.domain.approval import Approval
from gpurun.domain.publication import PublicationKind
from gpurun.domain.run import Result, ResultKind, RunState, Untrusted, Verdict
from gpurun.ports.store import Kind
from tests.fakes.parts import Script
from tests.fakes.world import World

RUN = "01kdrun0000000000000000001"
REACT, CHECK, COMMENT = PublicationKind.REACT, PublicationKind.CHECK, PublicationKind.COMMENT


@pytest.fixture
def store_url(tmp_path):
    """One database is enough: the rule is the same in both, as its own test says."""
    return str(tmp_path / "gpurun.db")


@pytest.fixture
def world(store, clock, chance):
    return World(store, clock, chance, targets=(REACT, CHECK, COMMENT))


async def busy(world: World, *, seconds: int) -> None:
    """Something new to tell every other second, as phases, downloads and logs have it."""
    for _ in range(seconds // 2):
        run = await world.the_run()
        if run.state is not RunState.ENDED:
            await world.store.write(lambda tx: tx.raise_rev(RUN, final=False, urgent=False))
        await world.run_for(seconds=2)


def writes(world: World) -> Counter[PublicationKind]:
    return Counter(one.kind for one in world.shown)


@pytest.mark.parametrize("boots_s", [1, 60])
async def test_a_run_of_three_minutes_is_six_writes_and_its_gate_is_two_more(world: World, boots_s: int):
    world.cloud.boots_after_s = boots_s
    world.agents.script = Script(works_s=178 - boots_s, result=Result(kind=ResultKind.PASSED, exit_code=0))
    await world.start()
    await busy(world, seconds=185)
    run = await world.the_run()
    assert run.verdict is Verdict.PASSED
    assert (run.ended_at - run.created_at).total_seconds() == pytest.approx(180, abs=4)
    assert writes(world) == {REACT: 1, CHECK: 2, COMMENT: 3}


async def test_a_run_of_ten_minutes_is_edited_twice_more(world: World):
    world.agents.script = Script(works_s=590, result=Result(kind=ResultKind.PASSED, exit_code=0))
    await world.start()
    await busy(world, seconds=605)
    assert writes(world) == {REACT: 1, CHECK: 2, COMMENT: 5}


async def test_the_end_waits_for_nothing(world: World):
    world.agents.script = Script(works_s=3, result=Result(kind=ResultKind.FAILED, exit_code=1, reason="exit"))
    await world.start()
    await world.run_for(seconds=30)
    ended = [one for one in world.shown if one.kind in (CHECK, COMMENT)][-2:]
    run = await world.the_run()
    assert [one.final for one in ended] == [True, True]
    assert all((one.sent_at - run.ended_at).total_seconds() < 1 for one in ended)


async def test_what_needs_a_person_and_what_a_person_did_about_it_is_shown_at_once(world: World):
    await world.start(untrusted=Untrusted.FORK, base_ref="main")
    await world.run_for(seconds=1)
    asked = await world.the_run()
    assert asked.state is RunState.WAITING_APPROVAL
    assert (world.shown[-1].sent_at - asked.state_since).total_seconds() < 1
    await world.run_for(minutes=2)
    before = len(world.shown)
    approval = Approval(
        id=world.chance.ulid(), repo=asked.repo, pr=1, sha=asked.sha, max_usd_micro=1, by="carol",
        at=world.clock.now(), asked_at=world.clock.now(),
    )  # fmt: skip
    await world.store.write(lambda tx: (tx.approve(approval), tx.wake(Kind.RUN, asked.id)))
    await world.beat()
    assert (await world.the_run()).detail.endswith("is for at most $0.000001.")  # too little
    assert {one.kind for one in world.shown[before:]} == {CHECK, COMMENT}
