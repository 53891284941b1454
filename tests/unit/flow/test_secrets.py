"""What a job may not have is said before anything is fetched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import SecretStr

from gpurun.adapters.secrets import MemorySecrets
from gpurun.adapters.vault import GivenVault
from gpurun.domain.run import Result, ResultKind, Run, Untrusted, Verdict
from gpurun.flow.facts import Links
from gpurun.flow.publish import Publisher
from gpurun.run.trust import may_hold_secrets
from gpurun.run.verdict import verdict_of, worth_a_retry
from tests.fakes.rows import a_run, an_attempt
from tests.fakes.world import CONFIG, World

NEEDY = f"{CONFIG}    secrets: [HF_TOKEN]\n"
POLICY = "version: 1\npolicy: {secrets: {HF_TOKEN: {jobs: [full]}}}\njobs: {}\n"


@pytest.fixture
def store_url(tmp_path):
    """SQLite: nothing here depends on the database."""
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
def world(store, clock, chance):
    return World(store, clock, chance, vault=GivenVault({"HF_TOKEN": SecretStr("value-of-it")}, MemorySecrets()))


async def started(world: World, **changes) -> Run:
    """The run a moment later, with other columns than a plain one."""
    run_id = await world.start(config_text=None)
    run = await world.the_run(run_id)

    def change(tx):
        from gpurun.adapters.store import tables

        tx._connection.execute(
            tables.run.update().where(tables.run.c.id == run.id).values(config_text=NEEDY, **changes)
        )

    await world.store.write(change)
    await world.run_for(seconds=20)
    return await world.the_run(run_id)


async def test_a_job_that_may_have_it_runs_and_its_plan_has_the_name(world):
    run = await started(world)
    assert run.verdict is Verdict.PASSED
    assert run.plan.secrets == ("HF_TOKEN",)
    assert "value-of-it" not in repr(run)


async def test_what_nobody_has_set(world):
    world.vault = GivenVault({}, MemorySecrets())
    world.restart()
    run = await started(world)
    assert (run.verdict, run.reason) == (Verdict.REFUSED, "secret")
    assert "HF_TOKEN" in run.detail
    assert world.cloud.book == []
    assert run.pins.tree is None


async def test_a_policy_that_gives_it_to_other_jobs_only(world):
    run = await started(world, policy_text=POLICY)
    assert (run.verdict, run.reason) == (Verdict.REFUSED, "policy")
    assert "The job smoke may not use the secret HF_TOKEN" in run.detail
    assert "`policy: {secrets: {HF_TOKEN: {jobs: [full, smoke]}}}` would let it" in run.detail


async def test_code_that_had_to_be_approved(world):
    run = await started(world, untrusted=Untrusted.FORK)
    assert (run.verdict, run.reason) == (Verdict.REFUSED, "secret")
    assert "gets no secrets" in run.detail


def test_only_what_needed_nobodys_word_is_trusted():
    assert may_hold_secrets(a_run())
    assert not may_hold_secrets(a_run(untrusted=Untrusted.FORK))
    assert not may_hold_secrets(a_run(untrusted=Untrusted.AUTHOR, approval="id"))


def test_a_refusal_of_the_claim_is_a_refusal_of_the_run():
    result = Result(kind=ResultKind.REFUSED, reason="secret", detail="why")
    assert verdict_of(result, an_attempt(), a_run()) is Verdict.REFUSED
    assert not worth_a_retry(result, an_attempt(), a_run())


async def test_a_publisher_learns_of_each_attempt_before_it_speaks(world):
    await started(world)
    learned = []

    async def learn(attempt_id):
        learned.append(attempt_id)

    publisher = Publisher(store=world.store, forge=world.forge, links=Links(), learn=learn)
    (row,) = await world.store.read(lambda tx: tx.publications(a_run().id))
    await publisher._render(replace(row))
    assert learned == [attempt.id for attempt in await world.the_attempts()]
