"""A cloud that keeps state: instances boot with the clock, answers get lost, lists lag, and a book holds the truth."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from gpurun.domain.build import Building, BuildPlan
from gpurun.domain.errors import CreateUnknown, NotYetDestroyed, ProviderRefused, ProviderUnavailable
from gpurun.domain.offer import ChargeLine, InstanceState, Launch, Offer, Owned, Preparation
from gpurun.domain.plan import Resources
from tests.fakes.clock import FakeClock

Call = Literal["offers", "prepare", "create", "destroy", "list", "describe", "logs", "why_never", "build", "tidy"]
Fault = Literal[
    "unavailable",  # nobody answered and nothing happened
    "lost",  # create: it was made, the answer never came
    "lost_unmade",  # create: no answer, and nothing was made
    "id_in_error",  # create: 500 with the id of what was made
    "capacity",
    "quota",
    "auth",
    "invalid",
    "not_yet",  # destroy: accepted, still there
]


@dataclass
class FakeInstance:
    """One line of the book; it stays when the instance is gone."""

    ref: str
    launch: Launch
    made_at: datetime
    gone_at: datetime | None = None
    exited: bool = False
    log: bytes = b""

    @property
    def alive(self) -> bool:
        """It costs money."""
        return self.gone_at is None


@dataclass
class FakeCloud:
    """`ports.provider.Provider`. What is `fail`ed comes once each, in order; otherwise everything works."""

    clock: FakeClock
    name: str = "fake"
    stock: int = 100
    boots_after_s: float = 3.0
    list_lag_s: float = 0.0
    listed_within_s: float = 180.0
    observe_every_s: float = 15.0
    usd_per_hour_micro: int = 1_000_000
    book: list[FakeInstance] = field(default_factory=list)
    most_at_once: int = 0
    """The largest number of instances that were alive together."""
    calls: list[tuple[Call, str]] = field(default_factory=list)
    _faults: defaultdict[Call, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    _always: dict[Call, Fault] = field(default_factory=dict)

    # what tests do

    def fail(self, call: Call, *faults: Fault) -> None:
        """The next calls fail so."""
        self._faults[call].extend(faults)

    def break_down(self, call: Call, fault: Fault) -> None:
        """Every call fails so, until `repair`."""
        self._always[call] = fault

    def repair(self) -> None:
        """Everything works again."""
        self._always.clear()
        self._faults.clear()

    @property
    def alive(self) -> list[FakeInstance]:
        """What costs money now."""
        return [instance for instance in self.book if instance.alive]

    def running(self) -> list[FakeInstance]:
        """Booted and not exited: an agent runs there."""
        return [instance for instance in self.alive if self._state(instance) is InstanceState.RUNNING]

    def vanish(self, instance: FakeInstance) -> None:
        """The host is gone."""
        instance.gone_at = self.clock.now()

    def exit(self, instance: FakeInstance, log: bytes = b"") -> None:
        """Its main process ended."""
        instance.exited = True
        instance.log = log

    def make(self, launch: Launch) -> FakeInstance:
        """An instance, whoever asked."""
        instance = FakeInstance(ref=f"i-{len(self.book)}", launch=launch, made_at=self.clock.now())
        self.book.append(instance)
        self.most_at_once = max(self.most_at_once, len(self.alive))
        return instance

    # the port

    async def offers(self, need: Resources) -> tuple[Offer, ...]:
        self._answer("offers", "")
        if self.stock <= len(self.alive):
            return ()
        return (
            Offer(
                provider=self.name,
                id="big",
                label=f"Big GPU ({self.name})",
                usd_per_hour_micro=self.usd_per_hour_micro,
                declared=False,
                boot_timeout_s=600,
            ),
        )

    async def create(self, launch: Launch) -> str:
        fault = self._take("create", launch.name)
        match fault:
            case None:
                return self.make(launch).ref
            case "lost":
                self.make(launch)
                raise CreateUnknown("The answer to create was lost.")
            case "lost_unmade":
                raise CreateUnknown("Create timed out.")
            case "id_in_error":
                ref = self.make(launch).ref
                raise CreateUnknown(f"500 while {ref} was being made.", ref=ref)
            case _:
                raise _error(fault)

    async def destroy(self, ref: str) -> None:
        self._answer("destroy", ref)
        for instance in self.alive:
            if instance.ref == ref:
                instance.gone_at = self.clock.now()

    async def list_owned(self, prefix: str) -> tuple[Owned, ...]:
        self._answer("list", prefix)
        shown_from = self.clock.now() - timedelta(seconds=self.list_lag_s)
        return tuple(
            self._owned(instance)
            for instance in self.alive
            if instance.launch.name.startswith(prefix) and instance.made_at <= shown_from
        )

    async def describe(self, ref: str) -> Owned | None:
        self._answer("describe", ref)
        return next((self._owned(instance) for instance in self.alive if instance.ref == ref), None)

    async def charges(self, ref: str) -> tuple[ChargeLine, ...]:
        return ()

    async def logs(self, ref: str, *, max_bytes: int) -> bytes:
        self._answer("logs", ref)
        return next((instance.log[-max_bytes:] for instance in self.book if instance.ref == ref), b"")

    async def close(self) -> None:
        return None

    def _owned(self, instance: FakeInstance) -> Owned:
        return Owned(
            ref=instance.ref,
            name=instance.launch.name,
            state=self._state(instance),
            created_at=instance.made_at,
        )

    def _state(self, instance: FakeInstance) -> InstanceState:
        if instance.exited:
            return InstanceState.EXITED
        booted = self.clock.now() >= instance.made_at + timedelta(seconds=self.boots_after_s)
        return InstanceState.RUNNING if booted else InstanceState.BOOTING

    def _take(self, call: Call, about: str) -> Fault | None:
        self.calls.append((call, about))
        if self._faults[call]:
            return self._faults[call].popleft()
        return self._always.get(call)

    def _answer(self, call: Call, about: str) -> None:
        fault = self._take(call, about)
        if fault is not None:
            raise _error(fault)


@dataclass
class SlowCloud(FakeCloud):
    """A cloud that has to pull the image first: `ports.provider.Prepares`."""

    pulls: int = 3
    """Calls of `prepare` until it is ready."""

    async def prepare(self, launch: Launch, *, wait_s: float) -> Preparation:
        self._answer("prepare", launch.name)
        self.pulls -= 1
        return Preparation(ready=self.pulls < 0, message=f"pulling image, {self.pulls} to go")


@dataclass
class MountingCloud(SlowCloud):
    """A cloud on the bot's own machine, which mounts weights: `ports.provider.MountsWeights`."""

    mounts_weights: Literal[True] = True


@dataclass
class BuildingCloud(SlowCloud):
    """A cloud that builds images: `ports.provider.Builds`."""

    pulls: int = 0
    answers: list[Building | Exception] = field(default_factory=list)
    """One for each question; the last one stays."""
    built: list[tuple[BuildPlan, Launch, bytes]] = field(default_factory=list)
    """What was asked for, and its context."""
    tidied: int = 0

    async def build(
        self, launch: Launch, build: BuildPlan, context: Callable[[], AsyncGenerator[bytes, None]], *, wait_s: float
    ) -> Building:
        self._answer("build", launch.name)
        self.built.append((build, launch, b"".join([piece async for piece in context()])))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def tidy_builds(self) -> None:
        self._answer("tidy", "")
        self.tidied += 1


@dataclass
class SmallCloud(FakeCloud):
    """A cloud that knows its machine: `ports.provider.SaysWhyNot`."""

    gpus: int = 0

    async def offers(self, need: Resources) -> tuple[Offer, ...]:
        return () if need.gpus > self.gpus else await super().offers(need)

    async def why_never(self, need: Resources) -> str | None:
        self._answer("why_never", "")
        return f"{self.name} has {self.gpus} GPUs." if need.gpus > self.gpus else None


def _error(fault: Fault) -> Exception:
    made: dict[Fault, Callable[[], Exception]] = {
        "unavailable": lambda: ProviderUnavailable("The cloud did not answer."),
        "not_yet": lambda: NotYetDestroyed("The cloud is still at it."),
        "capacity": lambda: ProviderRefused("No host is free.", kind="capacity"),
        "quota": lambda: ProviderRefused("The quota is used up.", kind="quota"),
        "auth": lambda: ProviderRefused("401 Unauthorized", kind="auth"),
        "invalid": lambda: ProviderRefused("400 Bad Request", kind="invalid"),
    }
    return made[fault]()


@dataclass
class Machines(FakeCloud):
    """Says what they are."""

    says: str | Exception = "linux/amd64"

    async def platform(self) -> str:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@dataclass
class KeepingCloud(FakeCloud):
    """Volumes outlive its instances."""

    volumes: set[str] = field(default_factory=set)

    async def create(self, launch: Launch) -> str:
        if launch.layer is not None:
            self.volumes.add(launch.layer.volume)
        return await super().create(launch)

    async def layer_volumes(self, shelf: str) -> tuple[str, ...]:
        return tuple(sorted(self.volumes))

    async def remove_layers(self, volumes: Sequence[str]) -> None:
        self.volumes -= set(volumes)
