"""Law 10 by walks: whatever happens, the gate is green when its jobs passed at the head or an approver says so."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest

from gpurun.domain.gate import Override, Pause
from gpurun.domain.ids import CommitSha, JobName
from gpurun.domain.run import RunState, Verdict
from tests.fakes.github import Pull
from tests.unit.flow.test_gate import BASE, CHANGES, UNREADABLE, approve, says
from tests.unit.flow.town import Town, open_town

STEPS = 20
HEADS = {name: files for name, files in (CHANGES | UNREADABLE).items() if len(files) == 1}
REMARK = {".gpurun.yml": BASE + "\n# only a remark\n"}
DROPPED = ("the job is dropped", "the job is renamed", "the file is dropped")


@pytest.fixture
def store_url(tmp_path):
    """One database is enough: the rows have tests on both."""
    return str(tmp_path / "gpurun.db")


class Walk:
    """What happened, kept apart from the bot's rows."""

    def __init__(self, town: Town, pull: Pull, chance: random.Random) -> None:
        self.town, self.pull, self.random = town, pull, chance
        self.change = ""
        self.verdicts: dict[str, Verdict | None] = {}
        self.approved = self.overridden = self.paused = False

    async def push(self) -> None:
        self.change = self.random.choice([*HEADS, *[""] * len(HEADS)])
        files = HEADS.get(self.change, REMARK)
        self.town.alice.push(self.pull, {**files, "n.txt": str(self.random.random())})
        self.approved = self.overridden = False
        await self.town.settle()

    async def run(self) -> None:
        await self.town.says("/gpurun smoke", on=self.pull)
        for one in await self.live():
            self.verdicts[one.sha] = None

    async def end(self, verdict: Verdict | None = None) -> None:
        for one in await self.live():
            self.town.clock.advance(seconds=80)  # until leases of the last end are over
            verdict = verdict or self.random.choice([*Verdict, *[Verdict.PASSED] * 4])
            await self.town.end(one, verdict)
            self.verdicts[one.sha] = verdict
            await self.town.settle()

    async def run_and_pass(self) -> None:
        await self.run()
        await self.end(Verdict.PASSED)

    async def approve(self) -> None:
        await approve(self.town)
        self.approved = True

    async def revoke(self) -> None:
        await self.town.says("/gpurun revoke", by="carol", on=self.pull)
        self.approved = False

    async def override(self) -> None:
        given = Override(
            id=self.town.chance.ulid(), repo=self.town.repo.ref, pr=self.pull.number,
            sha=CommitSha(self.pull.head_sha), job=JobName("smoke"), folder="", reason="r", by="carol",
            at=self.town.clock.now(),
        )  # fmt: skip
        await self.town.store.write(lambda tx: (tx.override(given), tx.raise_gate(given.repo, given.pr)))
        self.overridden = True
        await self.town.settle()

    async def pause_or_resume(self) -> None:
        pause = Pause(
            id=self.town.chance.ulid(), repo=self.town.repo.ref, reason="r", by="dora", at=self.town.clock.now()
        )

        def apply(tx):
            held = tx.pause_of(pause.repo)
            if held is None:
                tx.pause(pause)
            else:
                tx.end_pause(held.id, "dora")
            tx.raise_gate(pause.repo, self.pull.number)

        await self.town.store.write(apply)
        self.paused = not self.paused
        await self.town.settle()

    async def close_and_open(self) -> None:
        self.town.alice.close(self.pull)
        await self.town.settle()
        self.town.alice.reopen(self.pull)
        self.approved = self.overridden = False
        await self.town.settle()

    async def wait(self) -> None:
        await self.town.later(minutes=6)

    async def live(self):
        return [one for one in await self.town.runs() if one.state is not RunState.ENDED]

    def should_be_green(self) -> bool:
        if self.paused or (self.change in UNREADABLE and not self.overridden):
            return False
        if self.overridden:
            return True
        if self.change and not self.approved:
            return False
        return self.change in DROPPED or self.verdicts.get(self.pull.head_sha) is Verdict.PASSED


@pytest.mark.parametrize("seed", range(6))
async def test_law_10_a_gate_is_green_when_what_is_required_passed_and_never_else(tmp_path, store, clock, chance, seed):
    async with open_town(tmp_path, store, clock, chance, gates=True) as town:
        town.repo.grant("carol", "maintain")
        town.alice.push(town.repo, {".gpurun.yml": BASE, "app.py": "pass"}, branch="main")
        town.alice.close(town.pull)
        town.pull = town.alice.open_pull_request(town.repo, branch="x", files={"app.py": "1"})
        await town.settle()
        walk = Walk(town, town.pull, random.Random(seed))
        acts: list[Callable[[], Awaitable[None]]] = [
            *[walk.push, walk.run_and_pass] * 3, *[walk.run, walk.end, walk.approve] * 2,
            walk.revoke, walk.override, walk.pause_or_resume, walk.close_and_open, walk.wait,
        ]  # fmt: skip
        told = []
        for _ in range(STEPS):
            act = walk.random.choice(acts)
            await act()
            told.append(f"{act.__name__} {walk.change}".strip())
            await town.later(seconds=16)
            assert (says(town) == "success") is walk.should_be_green(), told
