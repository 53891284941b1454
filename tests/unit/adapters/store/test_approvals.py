"""Approvals: one in force for a pull request, and none ever lost."""

from dataclasses import replace
from datetime import timedelta

from gpurun.domain.approval import Approval, ApprovalEnd
from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import CommitSha, RepoName
from tests.fakes.clock import START
from tests.unit.adapters.store.samples import REPO, SHA

GIVEN = Approval(id="approval-1", repo=REPO, pr=1, sha=SHA, max_usd_micro=500_000, by="carol", at=START, asked_at=START)


async def give(store, *approvals):
    for one in approvals:
        await store.write(lambda tx, one=one: tx.approve(one))


async def test_it_is_read_as_it_was_given(store):
    await give(store, GIVEN, replace(GIVEN, id="approval-2", pr=2, max_usd_micro=None))
    assert await store.read(lambda tx: tx.approval(REPO, 1)) == GIVEN
    assert await store.write(lambda tx: tx.hold_approval(REPO, 1)) == GIVEN
    assert (await store.read(lambda tx: tx.approval(REPO, 2))).max_usd_micro is None
    assert await store.read(lambda tx: tx.approval(REPO, 3)) is None


async def test_another_one_takes_its_place_and_the_first_stays_on_record(store, clock):
    await give(store, GIVEN)
    clock.advance(seconds=5)
    second = replace(GIVEN, id="approval-2", sha=CommitSha("b" * 40), by="dan", at=START + timedelta(seconds=5))
    await give(store, second)
    assert await store.read(lambda tx: tx.approval(REPO, 1)) == second
    first, _ = await store.read(lambda tx: tx.approvals(REPO, 1))
    assert (first.end, first.ended_by) == (ApprovalEnd.REPLACED, "dan")
    assert first.ended_at is not None


async def test_it_ends_once(store):
    await give(store, GIVEN)
    assert await store.write(lambda tx: tx.end_approval("approval-1", ApprovalEnd.PUSHED, "b" * 40))
    assert not await store.write(lambda tx: tx.end_approval("approval-1", ApprovalEnd.REVOKED, "carol"))
    assert await store.read(lambda tx: tx.approval(REPO, 1)) is None
    (ended,) = await store.read(lambda tx: tx.approvals(REPO, 1))
    assert (ended.end, ended.ended_by) == (ApprovalEnd.PUSHED, "b" * 40)


async def test_a_repository_is_known_by_its_id_and_not_by_its_name(store):
    """It was renamed, or somebody else has the name now."""
    await give(store, GIVEN)
    renamed = RepoRef(installation_id=7, name=RepoName("octo/renamed"), id=REPO.id)
    other = RepoRef(installation_id=7, name=REPO.name, id=71)
    assert await store.read(lambda tx: tx.approval(renamed, 1)) == GIVEN
    assert await store.read(lambda tx: tx.approval(other, 1)) is None


def test_a_ceiling_covers_what_is_not_more():
    assert GIVEN.covers(500_000)
    assert not GIVEN.covers(500_001)
    assert replace(GIVEN, max_usd_micro=None).covers(10**12)
