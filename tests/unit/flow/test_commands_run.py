"""Commands that start runs: arguments that narrow, joining what is live, trying again."""

import pytest

from gpurun.domain.publication import PublicationKind
from gpurun.domain.run import Verdict
from tests.unit.flow.town import CONFIG, Town, open_town

BIG = CONFIG.replace("run: python smoke.py", "run: python smoke.py, resources: {gpu: 24GB..80GB}")


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance) as town:
        town.repo.grant("carol", "maintain")
        yield town


def last(town, pull=None):
    return town.comments(pull)[-1].body


async def test_arguments_are_kept_with_the_run_and_shown(town: Town):
    town.alice.push(town.pull, {".gpurun.yml": BIG})
    await town.says("/gpurun smoke gpu=40GB provider=docker max-cost=0.50")
    (run,) = await town.runs()
    assert (run.narrow.gpu, run.narrow.provider, run.narrow.max_usd_micro) == ("40GB", "docker", 500_000)
    assert "asked by `alice` as `/gpurun smoke gpu=40GB provider=docker max-cost=0.50`" in last(town)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("gpu=16GB", "is not within what the job asks for: `24GB..80GB:1`"),
        ("sha=abcdef0", "Nothing was started: `abcdef0` is not the head of this pull request, which is `"),
    ],
)
async def test_what_would_widen_or_is_another_commit_starts_nothing(town: Town, typed, told):
    town.alice.push(town.pull, {".gpurun.yml": BIG})
    await town.says(f"/gpurun smoke {typed}")
    assert await town.runs() == ()
    assert told in last(town)


async def test_the_beginning_of_the_head_is_enough(town: Town):
    await town.says(f"/gpurun smoke sha={town.pull.head_sha[:7].upper()}")
    (run,) = await town.runs()
    assert run.sha == town.pull.head_sha


async def test_a_provider_that_the_policy_does_not_allow_starts_nothing(town: Town):
    town.alice.push(town.repo, {".gpurun.yml": CONFIG + "policy: {providers: []}\n"}, branch="main")
    await town.says("/gpurun smoke provider=docker")
    assert await town.runs() == ()
    assert "does not allow `provider=docker`" in last(town)


async def test_three_runs_of_one_batch_have_checks_and_comments_of_their_own(town: Town):
    await town.says("/gpurun smoke repeat=3")
    runs = await town.runs()
    assert [(run.narrow.number, run.narrow.of) for run in runs] == [(1, 3), (2, 3), (3, 3)]
    assert len({run.narrow.batch for run in runs}) == 1
    names = sorted(check.name for check in town.github.checks(town.repo))
    assert names == [f"gpurun / smoke ({n} of 3)" for n in (1, 2, 3)]
    assert len(town.comments()) == 3
    await town.says("/gpurun smoke repeat=3", by="carol")
    assert [run.also_asked for run in await town.runs()] == [("carol",)] * 3
    assert "already runs like this" in last(town)


async def test_other_arguments_are_another_run(town: Town):
    await town.says("/gpurun smoke")
    await town.says("/gpurun smoke max-cost=1")
    assert len(await town.runs()) == 2


async def test_retry_runs_again_what_failed_with_its_arguments(town: Town):
    await town.says("/gpurun smoke max-cost=1\n/gpurun full")
    smoke, full = await town.runs()
    await town.end(smoke, Verdict.LOST)
    await town.later(minutes=2)
    await town.end(full, Verdict.PASSED)
    await town.says("/gpurun retry")
    _, _, again = await town.runs()
    assert (again.job, again.narrow.max_usd_micro, again.sha) == ("smoke", 1_000_000, smoke.sha)
    await town.says("/gpurun retry all")
    assert [run.job for run in (await town.runs())[3:]] == ["full"]


async def test_retry_of_one_run_of_a_batch_repeats_the_whole(town: Town):
    await town.says("/gpurun smoke repeat=2")
    one, two = await town.runs()
    await town.end(one, Verdict.PASSED)
    await town.later(minutes=2)
    await town.end(two, Verdict.FAILED)
    await town.says("/gpurun retry smoke")
    third, fourth = (await town.runs())[2:]
    assert (third.narrow.of, fourth.narrow.number) == (2, 2)
    assert third.narrow.batch not in ("", one.narrow.batch)


async def test_retry_says_so_when_there_is_nothing(town: Town):
    await town.says("/gpurun retry")
    assert "No job ran at" in last(town)
    await town.says("/gpurun smoke")
    (run,) = await town.runs()
    await town.says("/gpurun retry smoke")
    assert "Nothing failed, timed out or was lost at the head of this pull request: smoke goes on." in last(town)
    await town.end(run, Verdict.PASSED)
    await town.says("/gpurun retry smoke")
    assert "smoke passed. `/gpurun retry all` runs again what has ended." in last(town)
    assert len(await town.runs()) == 1


async def test_the_author_may_retry_once_exactly_the_head_was_approved(town: Town):
    pull = town.bob.open_pull_request(town.repo, branch="x", files={".gpurun.yml": CONFIG}, fork=True)
    await town.says("/gpurun smoke", on=pull)
    (run,) = await town.runs()
    await town.end(run, Verdict.FAILED)
    await town.says("/gpurun retry", by="bob", on=pull)
    assert "and the author of a pull request whose head was approved" in last(town, pull)
    await town.says(f"/gpurun approve sha={pull.head_sha}", by="carol", on=pull)
    await town.says("/gpurun retry", by="bob", on=pull)
    _, again = await town.runs()
    assert (again.who, again.untrusted) == ("bob", run.untrusted)


async def test_a_run_is_cancelled_by_its_id(town: Town):
    await town.says("/gpurun smoke\n/gpurun full")
    _, full = await town.runs()
    await town.says(f"/gpurun cancel {full.id}")
    assert [run.cancel_at is not None for run in await town.runs()] == [False, True]


async def test_a_close_cancels_trusted_code_too(town: Town):
    await town.says("/gpurun smoke")
    town.alice.close(town.pull)
    await town.settle()
    (run,) = await town.runs()
    assert run.cancel_by == "the end of the pull request"


async def test_a_close_of_which_nobody_told_is_seen_by_the_next_command(town: Town):
    await town.says("/gpurun smoke")
    town.alice.close(town.pull)
    await town.says("/gpurun status", by="bob")
    (run,) = await town.runs()
    assert run.cancel_by == "the end of the pull request"


async def test_targets_of_a_run_are_a_check_and_a_comment(town: Town):
    await town.says("/gpurun smoke")
    (run,) = await town.runs()
    rows = await town.store.read(lambda tx: tx.publications(run.id))
    assert {row.kind for row in rows} == {PublicationKind.CHECK, PublicationKind.COMMENT}
