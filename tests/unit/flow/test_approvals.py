"""Approvals are for one commit: what gives them, what ends them, and comments, pushes and approvals in every order."""

import json
from dataclasses import replace

import pytest

from gpurun.domain.approval import ApprovalEnd
from gpurun.domain.run import RunState, Untrusted
from gpurun.run.trust import is_approved
from tests.unit.flow.town import CONFIG, Town, open_town

DIGEST = "a" * 64


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance) as town:
        town.repo.grant("carol", "maintain")
        yield town


@pytest.fixture
def fork(town):
    return town.bob.open_pull_request(town.repo, branch="x", files={".gpurun.yml": CONFIG}, fork=True)


def with_rules(town: Town, text: str) -> None:
    """On the default branch."""
    town.alice.push(town.repo, {".gpurun.yml": CONFIG + text}, branch="main")


async def approve(town: Town, pull, *, by="carol", more="") -> None:
    await town.says(f"/gpurun approve sha={pull.head_sha}{more}", by=by, on=pull)


async def in_force(town: Town, pull):
    return await town.store.read(lambda tx: tx.approval(town.repo.ref, pull.number))


async def ends(town: Town, pull):
    every = await town.store.read(lambda tx: tx.approvals(town.repo.ref, pull.number))
    return [one.end for one in every]


async def kinds(town: Town, pull):
    found = await town.store.read(lambda tx: tx.audit_of(f"repo:acme/train#{pull.number}"))
    return [entry.kind for entry in found]


async def runs_on(town: Town, run) -> None:
    """What the engine does when it sees the approval, without the engine."""
    from datetime import timedelta

    from gpurun.ports.store import Kind

    def apply(tx):
        leases = tx.claim(Kind.RUN, limit=100, token="engine", length=timedelta(seconds=75))
        (lease,) = (one for one in leases if one.id == run.id)
        approval = tx.hold_approval(run.repo, run.pr)
        tx.save_run(replace(run, state=RunState.ACTIVE, approval=approval.id, due_at=None), lease)

    await town.store.write(apply)


async def test_it_is_for_the_commit_that_was_typed(town: Town, fork):
    await approve(town, fork, more=" max-cost=0.42")
    given = await in_force(town, fork)
    assert (given.sha, given.by, given.max_usd_micro) == (fork.head_sha, "carol", 420_000)
    assert given.asked_at == town.clock.now()
    assert f"`{fork.head_sha}` may run for at most $0.42 a run" in town.comments(fork)[-1].body
    assert "approved" in await kinds(town, fork)


async def test_another_commit_than_the_head_is_not_approved(town: Town, fork):
    before = fork.head_sha
    town.bob.push(fork, {"x": "1"})
    await town.says(f"/gpurun approve sha={before}", by="carol", on=fork)
    assert await in_force(town, fork) is None
    assert f"is not the head of this pull request, which is `{fork.head_sha}` now" in town.comments(fork)[-1].body


async def test_who_may_only_run_may_not_approve(town: Town, fork):
    await approve(town, fork, by="alice")
    assert await in_force(town, fork) is None
    assert "people with the role maintain" in town.comments(fork)[-1].body
    assert "approve_denied" in await kinds(town, fork)


async def test_permissions_of_the_default_branch_count_and_those_of_the_head_do_not(town: Town):
    files = {".gpurun.yml": CONFIG + "permissions: {approve: write, users: {bob: admin}}\n"}
    pull = town.bob.open_pull_request(town.repo, branch="x", files=files, fork=True)
    await approve(town, pull, by="bob")
    await approve(town, pull, by="alice")
    assert await in_force(town, pull) is None
    with_rules(town, "permissions: {approve: write}\n")
    await approve(town, pull, by="alice")
    assert (await in_force(town, pull)).by == "alice"


async def test_somebody_is_named_by_the_default_branch(town: Town, fork):
    with_rules(town, "permissions: {users: {Dora: approve}}\n")
    await approve(town, fork, by="dora")
    assert (await in_force(town, fork)).by == "dora"
    await town.says("/gpurun smoke", by="dora", on=fork)
    assert len(await town.runs()) == 1


async def test_permissions_that_nobody_can_read_let_nobody_start_or_approve(town: Town, fork):
    with_rules(town, "permissions: {run: everybody}\n")
    await approve(town, fork)
    await town.says("/gpurun smoke", by="carol", on=fork)
    assert await in_force(town, fork) is None
    assert await town.runs() == ()
    assert "The permissions of the default branch cannot be read" in town.comments(fork)[-1].body


async def test_an_approval_of_code_that_needs_none_is_kept_and_told(town: Town):
    await approve(town, town.pull)
    assert (await in_force(town, town.pull)).sha == town.pull.head_sha
    assert "runs without an approval, too" in town.comments()[-1].body


async def test_the_same_again_is_told_and_another_ceiling_takes_its_place(town: Town, fork):
    await approve(town, fork, more=" max-cost=1")
    await approve(town, fork, more=" max-cost=1")
    assert "has approved" in town.comments(fork)[-1].body
    assert len(await ends(town, fork)) == 1
    await approve(town, fork, more=" max-cost=2")
    assert await ends(town, fork) == [ApprovalEnd.REPLACED, None]


async def test_bots_of_the_policy_count_as_people_who_may_push(town: Town):
    pull = town.github.user("renovate[bot]").open_pull_request(
        town.repo, branch="deps", files={".gpurun.yml": CONFIG + "policy: {bots: ['renovate[bot]']}\n"}
    )
    await town.says("/gpurun smoke", on=pull)
    with_rules(town, "policy: {bots: ['renovate[bot]']}\n")
    await town.says("/gpurun full", on=pull)
    assert [run.untrusted for run in await town.runs()] == [Untrusted.AUTHOR, None]


async def test_a_readers_branch_of_the_repository_itself_is_untrusted(town: Town):
    pull = town.bob.open_pull_request(town.repo, branch="r", files={".gpurun.yml": CONFIG})
    await town.says("/gpurun smoke", on=pull)
    assert [run.untrusted for run in await town.runs()] == [Untrusted.AUTHOR]


async def test_an_approval_of_another_pull_request_with_the_same_commit_does_not_count(town: Town, fork):
    twin = town.github.user("dave").open_pull_request(town.repo, branch="y", files={".gpurun.yml": CONFIG}, fork=True)
    await approve(town, fork)
    await town.says("/gpurun smoke", on=twin)
    (run,) = await town.runs()
    assert not is_approved(run, await in_force(town, twin))


# what ends it


@pytest.mark.parametrize(
    ("act", "end", "said"),
    [
        (lambda town, pull: town.bob.push(pull, {"x": "1"}), ApprovalEnd.PUSHED, "a push: the head is "),
        (lambda town, pull: town.bob.push(pull, {"x": "1"}, force=True), ApprovalEnd.PUSHED, "a push: the head is "),
        (lambda town, pull: town.bob.close(pull), ApprovalEnd.CLOSED, "the end of the pull request"),
        (
            lambda town, pull: town.bob.convert_to_draft(pull),
            ApprovalEnd.DRAFTED,
            "the pull request's becoming a draft",
        ),
        (lambda town, pull: town.alice.change_base(pull, "dev"), ApprovalEnd.REBASED, "another base branch"),
    ],
)
async def test_b024_what_ends_it_stops_what_runs_under_it(town: Town, fork, act, end, said):
    town.repo.git.set_ref("refs/heads/dev", town.repo.git.resolve("main"))
    await town.says("/gpurun smoke", on=fork)
    (run,) = await town.runs()
    await approve(town, fork)
    await runs_on(town, run)
    act(town, fork)
    await town.settle()
    assert await ends(town, fork) == [end]
    (run,) = await town.runs()
    assert run.cancel_at is not None
    assert run.cancel_by.startswith(said)
    assert "approval_ended" in await kinds(town, fork)


async def test_revoke_stops_what_runs_under_it_and_leaves_what_waits(town: Town, fork):
    await town.says("/gpurun smoke\n/gpurun full", on=fork)
    smoke, _ = await town.runs()
    await approve(town, fork)
    await runs_on(town, smoke)
    await town.says("/gpurun revoke", by="carol", on=fork)
    smoke, full = await town.runs()
    assert smoke.cancel_by == "carol, who revoked the approval"
    assert full.cancel_at is None
    assert await ends(town, fork) == [ApprovalEnd.REVOKED]
    assert "has ended" in town.comments(fork)[-1].body
    await town.says("/gpurun revoke", by="carol", on=fork)
    assert "No approval is in force" in town.comments(fork)[-1].body


async def test_a_new_title_ends_nothing(town: Town, fork):
    await approve(town, fork)
    town.bob.retitle(fork, "Another title")
    await town.settle()
    assert await ends(town, fork) == [None]


async def test_a_push_to_trusted_code_stops_nothing(town: Town):
    await town.says("/gpurun smoke")
    town.alice.push(town.pull, {"x": "1"})
    await town.settle()
    assert [run.cancel_at for run in await town.runs()] == [None]


async def test_a_head_that_is_read_and_differs_ends_it_though_no_delivery_came(town: Town, fork):
    await approve(town, fork)
    await town.says("/gpurun smoke", on=fork)
    town.bob.push(fork, {"x": "1"})
    town.github.queued.clear()  # GitHub lost it
    await town.says("/gpurun smoke", on=fork)
    old, new = await town.runs()
    assert await ends(town, fork) == [ApprovalEnd.PUSHED]
    assert (old.cancel_by[:6], new.cancel_at, new.sha) == ("a push", None, fork.head_sha)
    assert not is_approved(new, await in_force(town, fork))


# races, each step by hand


async def test_b022_a_push_between_the_look_and_the_word_is_refused(town: Town, fork):
    """The delivery of the push has not come yet: the head is read, and differs."""
    looked_at = fork.head_sha
    town.bob.push(fork, {"x": "1"})
    town.github.queued.clear()
    await town.says(f"/gpurun approve sha={looked_at}\n/gpurun smoke", by="carol", on=fork)
    (run,) = await town.runs()
    assert run.sha == fork.head_sha
    assert not is_approved(run, await in_force(town, fork))


@pytest.mark.parametrize("order", ["comment first", "push first"])
async def test_a_comment_and_a_push_whose_deliveries_come_in_any_order(town: Town, fork, order):
    """The word is written before the push, and read after it: it is for a commit that is the head no more."""
    town.github.user("carol").comment(fork, f"/gpurun approve sha={fork.head_sha}\n/gpurun smoke")
    town.bob.push(fork, {"x": "1"})
    if order == "push first":
        town.github.queued.reverse()
    await town.settle()
    (run,) = await town.runs()
    assert (run.sha, run.cancel_at) == (fork.head_sha, None)
    assert await in_force(town, fork) is None


@pytest.mark.parametrize("order", ["push first", "approval first"])
async def test_an_approval_of_the_new_head_outlives_a_late_delivery_of_the_push(town: Town, fork, order):
    town.bob.push(fork, {"x": "1"})
    town.clock.advance(seconds=5)
    town.github.user("carol").comment(fork, f"/gpurun approve sha={fork.head_sha}\n/gpurun smoke")
    if order == "approval first":
        town.github.queued.reverse()
    await town.settle()
    (run,) = await town.runs()
    assert (await in_force(town, fork)).sha == fork.head_sha
    assert run.cancel_at is None


async def test_an_older_push_that_is_delivered_late_ends_nothing(town: Town, fork):
    town.bob.push(fork, {"x": "1"})
    late = [hook for hook in town.github.queued if hook.action == "synchronize"]
    town.github.queued.clear()
    town.clock.advance(seconds=5)
    town.bob.push(fork, {"x": "2"})
    town.clock.advance(seconds=5)
    await town.says(f"/gpurun approve sha={fork.head_sha}\n/gpurun smoke", by="carol", on=fork)
    for hook in late:
        await town.github.redeliver(hook)
    await town.settle()
    assert (await in_force(town, fork)).sha == fork.head_sha
    assert [run.cancel_at for run in await town.runs()] == [None]


async def test_b024_away_and_back_again_is_two_pushes(town: Town, fork):
    """The head is what was approved, and somebody has pushed since all the same."""
    first = fork.head_sha
    await town.says("/gpurun smoke", on=fork)
    (run,) = await town.runs()
    await approve(town, fork)
    await runs_on(town, run)
    town.clock.advance(seconds=5)
    town.bob.push(fork, {"x": "1"})
    fork.head_repo.git.set_ref(f"refs/heads/{fork.head_branch}", first)
    fork.head_sha = first
    await town.settle()
    assert await in_force(town, fork) is None
    assert [run.cancel_at is None for run in await town.runs()] == [False]


async def test_a_close_and_a_reopening_leave_no_approval(town: Town, fork):
    await approve(town, fork)
    town.bob.close(fork)
    town.bob.reopen(fork)
    await town.settle()
    await town.says("/gpurun smoke", on=fork)
    (run,) = await town.runs()
    assert not is_approved(run, await in_force(town, fork))


async def test_approve_close_and_the_word_is_read_late(town: Town, fork):
    town.github.user("carol").comment(fork, f"/gpurun approve sha={fork.head_sha}\n/gpurun smoke")
    town.bob.close(fork)
    town.github.queued.reverse()
    await town.settle()
    assert await in_force(town, fork) is None
    assert await town.runs() == ()


async def test_a_delivery_that_somebody_made_up_can_only_end_something(town: Town, fork):
    """Whoever has the webhook's secret can end an approval. They cannot give one, or move it to another commit."""
    await approve(town, fork)
    town.bob.push(fork, {"x": "1"})
    (hook,) = (one for one in town.github.queued if one.action == "synchronize")
    body = json.loads(hook.body)
    body["pull_request"]["head"]["sha"] = body["after"] = "e" * 40
    hook.body = json.dumps(body).encode()
    await town.settle()
    assert await in_force(town, fork) is None
    assert await town.runs() == ()


@pytest.mark.parametrize("body", [b"{}", b'{"action": "synchronize"}', b"[]"])
async def test_a_delivery_of_another_shape_ends_nothing_and_breaks_nothing(town: Town, fork, body):
    from gpurun.flow.events import pull_changed

    assert pull_changed(body) is None
