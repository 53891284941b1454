"""A command and something else at the same moment: what happens first, and what is told first, are two questions.

Each row is stepped in four orders. After each: no run of a commit that nobody approved may start, one answer to one
comment, one run at most, and nothing of a stranger's goes on for a pull request that was closed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gpurun.domain.run import RunState
from gpurun.run.trust import is_approved
from tests.fakes.github import Pull
from tests.unit.flow.town import CONFIG, Town, open_town

Act = Callable[[Town, Pull], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    act: Act
    answers: tuple[int, ...] = (1,)
    """Comments of the bot that may be there. A run's own comment answers whatever starts it or lets it go on."""
    runs: int | None = 1
    """None: one, or none when the act came before the look."""
    approved: bool | None = False
    """Whether an approval is in force afterwards; None: it depends on the order."""
    after: Act | None = None
    """What ends the act, so that an answer can come."""


def says(words: str, *, by: str = "carol") -> Act:
    return lambda town, pull: town.github.user(by).comment(pull, words.format(sha=pull.head_sha))


def edits(town: Town, pull: Pull) -> None:
    """The newest comment, as GitHub lets its author do; when it is not there yet, one that says nothing."""
    mine = [one for one in town.github.comments(pull) if one.author.login == "dora"]
    town.github.user("dora").edit_comment(mine[-1], "/gpurun smoke")


def deletes_branch(town: Town, pull: Pull) -> None:
    """As the page of a merged or closed pull request offers; the pull request is closed by that."""
    town.bob.close(pull)
    pull.head_repo.git.delete_ref(f"refs/heads/{pull.head_branch}")


def reopens(town: Town, pull: Pull) -> None:
    town.bob.close(pull)
    town.bob.reopen(pull)


RACES = {
    "push": Race(act=lambda town, pull: town.bob.push(pull, {"x": "1"})),
    "force-push": Race(act=lambda town, pull: town.bob.push(pull, {"x": "1"}, force=True)),
    "two pushes": Race(act=lambda town, pull: [town.bob.push(pull, {"x": one}) for one in "12"]),
    "close": Race(act=lambda town, pull: town.bob.close(pull), runs=None),
    "delete the branch": Race(act=deletes_branch, runs=None),
    "delete the fork": Race(act=lambda town, pull: town.bob.delete_fork(pull), runs=None, approved=None),
    "close and reopen": Race(act=reopens),
    "rename": Race(act=lambda town, pull: town.github.rename(town.repo, "acme/other"), approved=True),
    "transfer": Race(act=lambda town, pull: town.github.rename(town.repo, "umbrella/train"), approved=True),
    "draft": Race(act=lambda town, pull: town.bob.convert_to_draft(pull)),
    "another base": Race(act=lambda town, pull: town.alice.change_base(pull, "dev")),
    "approval": Race(act=says("/gpurun approve sha={sha} max-cost=3"), answers=(1, 2), approved=True),
    "revoke": Race(act=says("/gpurun revoke"), answers=(2,)),
    "the same command again": Race(act=says("/gpurun smoke"), answers=(2,), approved=True),  # who joins gets a link
    "an edit into a command": Race(act=edits, approved=True),
    "suspension": Race(
        act=lambda town, pull: town.github.suspend(town.repo),
        after=lambda town, pull: town.github.unsuspend(town.repo),
        answers=(0, 1),  # what is written to a suspended App is never delivered
        runs=None,
        approved=True,
    ),
}


@pytest.fixture
def store_url(tmp_path):
    """One database is enough: what is raced for is at GitHub."""
    return str(tmp_path / "gpurun.db")


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance) as town:
        town.repo.grant("carol", "maintain")
        town.repo.grant("dora", "maintain")
        town.repo.git.set_ref("refs/heads/dev", town.repo.git.resolve("main"))
        yield town


@pytest.fixture
async def fork(town):
    """Of a stranger, its head approved by carol."""
    pull = town.bob.open_pull_request(town.repo, branch="x", files={".gpurun.yml": CONFIG}, fork=True)
    await town.says("A word of mine", by="dora", on=pull)
    await town.says(f"/gpurun approve sha={pull.head_sha}", by="carol", on=pull)
    town.clock.advance(seconds=5)
    return pull


@pytest.mark.parametrize("told", ["in order", "the other way round"])
@pytest.mark.parametrize("first", ["command", "act"])
@pytest.mark.parametrize("name", RACES)
async def test_after_every_order_the_same_holds(town: Town, fork: Pull, name: str, first: str, told: str):
    race, approved_sha, before = RACES[name], fork.head_sha, len(town.comments(fork))
    steps = [says("/gpurun smoke"), race.act]
    for step in steps if first == "command" else reversed(steps):
        step(town, fork)
        town.clock.advance(seconds=2)
    if told == "the other way round":
        town.github.queued.reverse()
    await town.settle()
    if race.after is not None:
        town.clock.advance(seconds=2)
        race.after(town, fork)
    for _ in range(5):
        await town.later(minutes=1)
    await holds(town, fork, race, approved_sha)
    assert len(town.comments(fork)) - before in race.answers
    assert all(len(town.reactions(one)) <= 1 for one in town.github.comments(fork))


async def holds(town: Town, pull: Pull, race: Race, approved_sha: str) -> None:
    runs = await town.runs()
    approval = await town.store.read(lambda tx: tx.approval(town.repo.ref, pull.number))
    assert len(runs) <= 1 if race.runs is None else len(runs) == race.runs
    assert race.approved is None or (approval is not None) == race.approved
    for run in runs:
        assert run.untrusted is not None
        assert run.sha == approved_sha or not is_approved(run, approval)
        live = run.state is not RunState.ENDED and run.cancel_at is None
        assert pull.state == "open" or not (live and is_approved(run, approval))
