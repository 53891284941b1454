"""The engine over a real store, a fake cloud and fake agents, on a clock that jumps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import SecretStr

from gpurun.adapters.secrets import MemorySecrets
from gpurun.adapters.vault import GivenVault
from gpurun.domain.publication import Publication, PublicationKind, PublicationState
from gpurun.domain.run import Attempt, AttemptState, AuditEntry, Run, RunState, Verdict
from gpurun.domain.stream import StreamName
from gpurun.flow.engine import AgentBundle, EngineServices, handlers, know_providers
from gpurun.flow.failpoints import Crash
from gpurun.flow.worker import LEASE, Handler, Worker
from gpurun.ports.store import Kind, Lease, Store, Tx
from gpurun.ports.vault import Vault
from gpurun.run.tokens import claim_token
from gpurun.telemetry.redact import Masker
from tests.fakes.clock import FakeChance, FakeClock
from tests.fakes.cloud import FakeCloud
from tests.fakes.parts import FakeAgents, FakeGit, FakeHub, FakeImages, FakeLayers, FakeUplinks, SourceOnlyForge
from tests.fakes.rows import IMAGE, SHA, TREE, a_run

CONFIG = f"""\
version: 1
jobs:
  smoke:
    image: {IMAGE}
    run: python smoke.py
    limits:
      max_duration: 30m
"""
SECRET = b"s" * 32
INSTALL = "a1b2c3d4"
OVER = (AttemptState.GONE, AttemptState.VOID)


@dataclass
class World:
    """`async with` is not needed: nothing runs between calls."""

    store: Store
    clock: FakeClock
    chance: FakeChance
    cloud: FakeCloud = field(init=False)
    slots: dict[str, int] = field(default_factory=lambda: {"fake": 4})
    git: FakeGit = field(default_factory=lambda: FakeGit({SHA: TREE}))
    hub: FakeHub = field(default_factory=FakeHub)
    layers: FakeLayers = field(default_factory=FakeLayers)
    images: FakeImages = field(default_factory=lambda: FakeImages({IMAGE}))
    forge: SourceOnlyForge = field(default_factory=SourceOnlyForge)
    uplinks: FakeUplinks = field(default_factory=FakeUplinks)
    vault: Vault = field(default_factory=lambda: GivenVault({}, MemorySecrets()))
    agents: FakeAgents = field(init=False)
    worker: Worker = field(init=False)
    more: dict[str, FakeCloud] = field(default_factory=dict)
    refuse_untrusted: frozenset[str] = frozenset()
    crashes: int = 0
    """Workers that died so far."""
    targets: tuple[PublicationKind, ...] = (PublicationKind.CHECK,)
    """Of each run."""
    shown: list[Publication] = field(default_factory=list)
    """One for each write to the forge."""

    def __post_init__(self) -> None:
        self.use(FakeCloud(self.clock))

    def use(self, cloud: FakeCloud) -> None:
        """Another cloud."""
        self.cloud = cloud
        self.agents = FakeAgents(self.store, cloud, SECRET)
        self.restart()

    def add(self, cloud: FakeCloud) -> None:
        """One more cloud, without agents."""
        self.more[cloud.name] = cloud
        self.restart()

    def restart(self) -> None:
        """Another worker; whatever the old one remembered is gone."""
        self.worker = Worker(self.store, self.clock, self.chance, self.handlers(), limit=8)

    def handlers(self) -> Mapping[Kind, Handler]:
        """Of the engine, and a publisher that shows everything at once."""
        return {**handlers(self.services()), Kind.PUBLICATION: self._show}

    async def _show(self, lease: Lease) -> None:
        def show(tx: Tx) -> None:
            row = tx.publication(lease.id)
            assert row is not None
            sent = replace(row, state=PublicationState.IDLE, sent_rev=row.desired_rev, sent_at=tx.now(), due_at=None)
            if tx.save_publication(sent, lease):
                self.shown.append(sent)

        await self.store.write(show)

    def services(self) -> EngineServices:
        """With this world's fakes."""
        return EngineServices(
            store=self.store,
            clock=self.clock,
            chance=self.chance,
            git=self.git,
            hub=self.hub,
            layers=self.layers,
            images=self.images,
            forge=self.forge,
            uplinks=self.uplinks,
            providers={self.cloud.name: self.cloud, **self.more},
            install_id=INSTALL,
            install_secret=SECRET,
            agent=AgentBundle(path="/agent.pyz", sha256="b" * 64, boot_script="exit 0"),
            slots=self.slots,
            vault=self.vault,
            masker=self._masker,
            refuse_untrusted=self.refuse_untrusted,
            stream_bytes={StreamName.LOG: 1_000_000, StreamName.METRICS: 1_000_000},
        )

    async def _masker(self, attempt: Attempt) -> Masker:
        return Masker([SecretStr(claim_token(SECRET, attempt.id))])

    async def start(
        self, run_id: str = "01kdrun0000000000000000001", config_text: str | None = CONFIG, **more: Any
    ) -> str:
        """Intake's part: the run row and its targets."""
        now = self.clock.now()
        try:
            await know_providers(self.services())
        except Crash:
            await know_providers(self.services())  # the next start
        run = a_run(id=run_id, created_at=now, state_since=now, due_at=now, config_text=config_text, **more)

        def add(tx: Tx) -> None:
            tx.add_run(run)
            for kind in self.targets:
                tx.publish(self._target(run, kind))

        await self.store.write(add)
        return run_id

    def _target(self, run: Run, kind: PublicationKind) -> Publication:
        about_run = kind is not PublicationKind.REACT
        return Publication(
            id=self.chance.ulid(),
            kind=kind,
            repo=run.repo,
            pr=1,
            run_id=run.id if about_run else "",
            text="" if about_run else "eyes",
            comment_id=0 if about_run else 1,
            nonce="n",
            created_at=run.created_at,
            due_at=run.created_at,
            final=not about_run,
        )

    async def beat(self) -> None:
        """Everything that is due now, and every agent, until both rest."""
        try:
            await self.worker.step_until_idle()
            if await self.agents.act():
                await self.worker.step_until_idle()
        except Crash:
            self.crashes += 1
            self.restart()
            self.clock.advance(seconds=LEASE.total_seconds() + 1)  # until the dead worker's leases end

    async def run_for(self, *, beats: int | None = None, **delta: float) -> None:
        """Time passes in steps of what is due next, at least a second; with `beats` in so many equal steps."""
        start, length = self.clock.now(), timedelta(**delta)
        await self.beat()
        while self.clock.now() < start + length:
            if beats is None:
                await self._jump(start + length)
            else:
                self.clock.advance(seconds=length.total_seconds() / beats)
            await self.beat()

    async def _jump(self, end: datetime) -> None:
        due = await self.store.read(lambda tx: tx.next_due()) or end
        step_s = (due - self.clock.now()).total_seconds()
        self.clock.advance(seconds=min(max(step_s, 1.0), (end - self.clock.now()).total_seconds()))

    async def run_until_over(self, *, limit_minutes: float = 240) -> None:
        """Until every run ended and every instance row came to rest."""
        end = self.clock.now() + timedelta(minutes=limit_minutes)
        while not await self.over():
            assert self.clock.now() < end, "it does not come to an end"
            await self._jump(end)
            await self.beat()

    async def over(self) -> bool:
        """Nothing is left to do but to observe."""
        runs = await self.store.read(lambda tx: tx.latest_runs(limit=100))
        live = await self.store.read(lambda tx: tx.live_attempts())
        return not live and all(run.state is RunState.ENDED for run in runs)

    async def the_run(self, run_id: str = "01kdrun0000000000000000001") -> Run:
        """As the row says."""
        run = await self.store.read(lambda tx: tx.run(run_id))
        assert run is not None
        return run

    async def the_attempts(self, run_id: str = "01kdrun0000000000000000001") -> tuple[Attempt, ...]:
        """Of that run."""
        return await self.store.read(lambda tx: tx.attempts(run_id))

    async def cancel(self, run_id: str = "01kdrun0000000000000000001") -> None:
        """Intake's part."""
        await self.store.write(lambda tx: tx.ask_cancel(run_id, "@eve"))

    async def audit(self, subject: str) -> tuple[AuditEntry, ...]:
        """What is on record."""
        return await self.store.read(lambda tx: tx.audit_of(subject))

    async def expect(self, verdict: Verdict, reason: str = "") -> Run:
        """The run ended so, once, and nothing is left alive."""
        run = await self.the_run()
        assert (run.state, run.verdict) == (RunState.ENDED, verdict), (run.state, run.verdict, run.reason, run.detail)
        if reason:
            assert run.reason == reason
        ends = [entry for entry in await self.audit(f"run:{run.id}") if entry.kind == "run_ended"]
        assert len(ends) == 1
        assert not self.cloud.alive
        assert not self.uplinks.open_now
        over = {attempt.id for attempt in await self.the_attempts()}
        assert not over & (set(self.hub.uses) | set(self.layers.uses)), "in use after the end"
        for attempt in await self.the_attempts():
            assert attempt.state in OVER
        checks = await self.store.read(lambda tx: tx.publications(run.id))
        assert all(check.final for check in checks)
        assert len(self.agents.user_code) <= 1, "user code ran twice"
        return run
