"""A bot in this process, without its engine: webhook, intake and outbox over the stateful GitHub, by a fake clock."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.routing import Route

from gpurun.adapters.github import GitHubForge
from gpurun.domain.errors import Bug
from gpurun.domain.run import Run, RunState, Verdict
from gpurun.flow.facts import Links
from gpurun.flow.gate import GateKeeper
from gpurun.flow.intake import Intake
from gpurun.flow.publish import Publisher
from gpurun.flow.worker import Handler, Worker
from gpurun.http.webhook import Webhook
from gpurun.ports.store import Kind, Lease, Store, Tx
from tests.fakes.clock import FakeChance, FakeClock
from tests.fakes.github import Comment, FakeGitHub, Pull

CONFIG = """\
version: 1
jobs:
  smoke: {{image: "ghcr.io/acme/app@sha256:{}", run: python smoke.py}}
  full: {{image: "ghcr.io/acme/app@sha256:{}", run: python full.py}}
""".format("a" * 64, "b" * 64)


class Town:
    """alice may write, bob may read; one pull request with two jobs."""

    def __init__(
        self,
        store: Store,
        github: FakeGitHub,
        forge: GitHubForge,
        clock: FakeClock,
        chance: FakeChance,
        *,
        gates: bool = False,
    ) -> None:
        self.gates = gates
        """Whether somebody looks at what is required: it costs requests that other tests count."""
        self.store = store
        self.github = github
        self.forge = forge
        self.clock = clock
        self.chance = chance
        self.repo = github.create_repo("acme/train")
        self.repo.grant("alice", "write")
        self.repo.grant("bob", "read")
        self.alice = github.user("alice")
        self.bob = github.user("bob")
        self.pull = self.alice.open_pull_request(self.repo, branch="smoke", files={".gpurun.yml": CONFIG})
        self.worker = self.new_worker()

    def new_worker(self) -> Worker:
        """As after a restart."""
        return Worker(self.store, self.clock, self.chance, self.handlers(), limit=4)

    def handlers(self) -> Mapping[Kind, Handler]:
        """Of everything but the engine."""
        keeper = GateKeeper(store=self.store, forge=self.forge, chance=self.chance)
        return {
            **({Kind.GATE: keeper} if self.gates else {}),
            Kind.INBOX: Intake(
                store=self.store,
                forge=self.forge,
                chance=self.chance,
                links=Links(public_url="https://bot.example"),
            ),
            Kind.PUBLICATION: Publisher(
                store=self.store, forge=self.forge, links=Links(public_url="https://bot.example")
            ),
        }

    async def says(self, body: str, *, by: str = "alice", on: Pull | None = None) -> Comment:
        """A comment, delivered and handled as far as it goes now."""
        comment = self.github.user(by).comment(on or self.pull, body)
        await self.settle()
        return comment

    async def settle(self) -> None:
        """Deliveries go out, and everything due now is done."""
        await self.github.deliver()
        await self.worker.step_until_idle()
        await self.github.deliver()
        await self.worker.step_until_idle()

    async def later(self, **delta: float) -> None:
        """Time passes."""
        self.clock.advance(**delta)
        await self.settle()

    async def runs(self) -> tuple[Run, ...]:
        """Oldest first."""
        runs = await self.store.read(lambda tx: tx.latest_runs(limit=100))
        return tuple(sorted(runs, key=lambda run: run.id))

    async def end(self, run: Run, verdict: Verdict) -> None:
        """What the engine does at the end of a run, without the engine."""

        def apply(tx: Tx) -> None:
            leases = tx.claim(Kind.RUN, limit=100, token="engine", length=timedelta(seconds=75))
            (lease,) = (one for one in leases if one.id == run.id)
            for other in leases:
                if other is not lease:
                    tx.release(other, due_at=tx.now())
            ended = ending(tx.run(run.id), verdict, tx)
            assert tx.save_run(ended, lease)
            tx.raise_rev(run.id, final=True, urgent=True)
            tx.raise_gate(run.repo, run.pr or 0)

        await self.store.write(apply)

    async def progress(self, run: Run) -> None:
        """The engine has news that can wait."""
        await self.store.write(lambda tx: tx.raise_rev(run.id, final=False, urgent=False))

    def comments(self, on: Pull | None = None) -> list[Comment]:
        """Of the bot."""
        return [one for one in self.github.comments(on or self.pull) if one.author is self.github.bot]

    def reactions(self, comment: Comment) -> list[str]:
        """Their contents."""
        return [str(getattr(one, "content", one)) for one in comment.reactions]

    async def inbox_states(self) -> Mapping[str, str]:
        """`event.action` and state of every delivery that made a row."""

        def read(tx: Tx) -> dict[str, str]:
            found: dict[str, str] = {}
            for number in itertools.count(1):
                try:
                    row = tx.inbox(str(number))
                except Bug:
                    break
                found[f"{number} {row.delivery.event}.{row.delivery.action}"] = f"{row.state}: {row.note}"
            return found

        return await self.store.read(read)


def ending(run: Run | None, verdict: Verdict, tx: Tx) -> Run:
    from dataclasses import replace

    assert run is not None
    return replace(
        run, state=RunState.ENDED, verdict=verdict, reason="exit", due_at=None, ended_at=tx.now(), state_since=tx.now()
    )


@asynccontextmanager
async def open_town(
    folder: Path, store: Store, clock: FakeClock, chance: FakeChance, *, gates: bool = False
) -> AsyncIterator[Town]:
    github = FakeGitHub(folder / "github", clock=clock)
    forge = GitHubForge(
        app_id=github.app.id,
        private_key=github.app.private_key,
        api_url=github.api_url,
        git_url=github.git_url,
        clock=clock,
        transport=github.transport,
    )
    webhook = Webhook(store=store, clock=clock, secrets=(github.app.webhook_secret,))
    github.hook_url = "http://bot.test/github"
    github.hook_transport = httpx.ASGITransport(app=Starlette(routes=[Route("/github", webhook)]))
    try:
        yield Town(store, github, forge, clock, chance, gates=gates)
    finally:
        await forge.close()


__all__ = ["CONFIG", "Lease", "Town", "open_town"]
