"""A command and something else at the same moment: each event right before and right after each step of the command."""

from __future__ import annotations

from collections import Counter

import pytest

from gpurun.run.trust import is_approved
from tests.unit.flow.town import CONFIG, Town, open_town


@pytest.fixture
def store_url(tmp_path):
    """One database is enough: which rows are made does not depend on it."""
    return str(tmp_path / "gpurun.db")


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance) as town:
        town.repo.grant("carol", "maintain")
        town.repo.git.set_ref("refs/heads/dev", town.repo.git.resolve("main"))
        yield town


STEPS = ("comment", "read_file", "create_check")
"""Of the way of a command: what is asked, what the commit follows, what is sent."""
EVENTS = {
    "push": lambda town, pull, _: town.bob.push(pull, {"x": "1"}),
    "force-push": lambda town, pull, _: town.bob.push(pull, {"x": "1"}, force=True),
    "close": lambda town, pull, _: town.bob.close(pull),
    "close and reopen": lambda town, pull, _: (town.bob.close(pull), town.bob.reopen(pull)),
    "draft": lambda town, pull, _: town.bob.convert_to_draft(pull),
    "another base": lambda town, pull, _: town.alice.change_base(pull, "dev"),
    "delete fork": lambda town, pull, _: town.bob.delete_fork(pull),
    "rename": lambda town, _pull, _: town.github.rename(town.repo, "acme/model"),
    "revoke": lambda town, pull, _: town.github.user("carol").comment(pull, "/gpurun revoke"),
    "approval": lambda town, pull, _: town.github.user("carol").comment(pull, f"/gpurun approve sha={pull.head_sha}"),
    "second comment": lambda town, pull, _: town.alice.comment(pull, "/gpurun smoke"),
    "cancel": lambda town, pull, _: town.alice.comment(pull, "/gpurun cancel"),
    "edit": lambda town, _pull, comment: town.github.user("carol").edit_comment(comment, "/gpurun full"),
    "delete": lambda town, _pull, comment: town.github.user("carol").delete_comment(comment),
    "suspend": lambda town, _pull, _: town.github.suspend(town.repo),
}
VOIDS = {"push", "force-push", "close", "close and reopen", "draft", "another base", "revoke"}


def race(town: Town, monkeypatch, step: str, side: str, act) -> None:
    """`act` happens once, at that side of the first such call."""
    call, done = getattr(town.forge, step), []

    async def raced(*words, **more):
        if side == "before" and not done:
            done.append(act())
        answer = await call(*words, **more)
        if side == "after" and not done:
            done.append(act())
        return answer

    monkeypatch.setattr(town.forge, step, raced)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("event", EVENTS)
async def test_a_command_of_an_approver_and_an_event(town: Town, monkeypatch, event, step, side):
    pull = town.bob.open_pull_request(town.repo, branch="x", files={".gpurun.yml": CONFIG}, fork=True)
    await town.settle()
    approved = pull.head_sha
    comment = town.github.user("carol").comment(pull, f"/gpurun approve sha={approved}\n/gpurun smoke")

    def act() -> None:
        town.clock.advance(seconds=2)
        EVENTS[event](town, pull, comment)

    race(town, monkeypatch, step, side, act)
    await town.settle()
    await town.later(minutes=2)
    if event == "suspend":
        town.github.unsuspend(town.repo)
    await town.later(minutes=20)
    await hold(town, pull, approved)
    runs = await town.runs()
    approval = await town.store.read(lambda tx: tx.approval(town.repo.ref, pull.number))
    if event in VOIDS:
        assert approval is None
        assert not any(is_approved(run, approval) for run in runs)
    if event in ("second comment", "approval", "rename", "suspend"):
        assert [(run.job, run.sha, run.cancel_at) for run in runs] == [("smoke", approved, None)]


async def hold(town: Town, pull, approved: str) -> None:
    """The laws, whatever came first."""
    runs = await town.runs()
    approval = await town.store.read(lambda tx: tx.approval(town.repo.ref, pull.number))
    for run in runs:
        if is_approved(run, approval):
            assert run.sha == approved == pull.head_sha, "code runs that nobody approved, or that is the head no more"
    live = Counter((run.job, run.sha) for run in runs if run.cancel_at is None)
    assert all(count == 1 for count in live.values()), "one job twice at one commit"
    checks = town.github.checks(town.repo)
    assert len({check.external_id for check in checks}) == len(checks), "two checks of a run"
    assert {check.conclusion for check in checks} <= {None, "action_required", "cancelled"}, "green without a run"
    shas = {run.id: run.sha for run in runs}
    assert all(check.head_sha == shas[check.external_id] for check in checks)
    assert not [state for state in (await town.inbox_states()).values() if state.startswith(("poison", "new"))]
