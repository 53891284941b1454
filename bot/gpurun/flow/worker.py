"""The loop: claims due rows, runs one step for each, and forgets. All memory is in the rows.

A step that dies leaves its row leased; when the lease ends, any worker takes it from what the row says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from itertools import groupby
from typing import TypeVar

import anyio
import structlog

from gpurun.domain.errors import Bug, GpurunError, NewerRow, Transient
from gpurun.domain.run import AttemptState
from gpurun.flow import edges, failpoints
from gpurun.ports.clock import Chance, Clock
from gpurun.ports.store import Kind, Lease, Store, Tx
from gpurun.run.timers import backoff

T = TypeVar("T")

Handler = Callable[[Lease], Awaitable[Lease | None]]
"""One step for one row. Its commit gives the row back, or keeps it by `go_on`; what it raises becomes a later try.

The lease that it returns may be of a row that it made: the worker goes on with that one, in the same place.
"""

LEASE = timedelta(seconds=75)
RENEW_EVERY_S = 20.0
POLL_S = 0.5
"""How late the commit of another process is noticed."""
BUSY_POLL_S = 0.1
"""A row that is due and leased by another process stays due: no spinning on it."""
BEAT_S = 0.25
"""Between two claims that only time asks for: a thousand timers, one by one, cost more to claim than to look after.
A commit is answered at once."""
DRAIN_S = 10.0
UNREADABLE_AGAIN = timedelta(minutes=1)
PAUSE_MAX_S = 900.0
"""The longest pause that another side can ask for: it must not put a row to sleep for years."""
UNFORESEEN = "gpurun itself failed at this; its log says more."
ENDLESS = 10_000
"""Steps without a pause that no test needs."""

log = structlog.get_logger()

_seconds_left: ContextVar[Callable[[], float]] = ContextVar("seconds_left")


class NotMine(Exception):
    """The lease ran out during the step; somebody else owns the row now."""


def still_mine(*, for_s: float) -> None:
    """Asked right before a call that cannot be undone: the lease surely lasts for all of it.

    Raises: NotMine.
    """
    if _seconds_left.get()() < for_s:
        raise NotMine


def if_mine(make: Callable[[], Awaitable[T]], *, for_s: float) -> Callable[[], Awaitable[T]]:
    """`make`, which asks that itself: nothing lies between the question and the call that cannot be undone.

    A process may be halted anywhere, for longer than its leases last, and go on as if nothing had been.
    """

    def asked() -> Awaitable[T]:
        still_mine(for_s=for_s)
        return make()

    return asked


def go_on(tx: Tx, lease: Lease) -> Lease | None:
    """At the end of a step's transaction: the row stays with this worker when it is due again."""
    return tx.keep(lease, length=LEASE)


class Worker:
    """Runs the handlers of this process."""

    def __init__(
        self, store: Store, clock: Clock, chance: Chance, handlers: Mapping[Kind, Handler], *, limit: int
    ) -> None:
        self._store = store
        self._clock = clock
        self._chance = chance
        self._handlers = handlers
        self._kinds = list(handlers)
        self._limit = limit
        self._held: dict[Lease, float] = {}
        """Monotonic time at which each lease may end."""
        self._freed = anyio.Event()
        self._claimed_at = -BEAT_S
        """Monotonic time of the last claim that was not in vain."""
        self._stopping = False

    async def run(self, stop: anyio.Event) -> None:
        """Until `stop`; then no new step starts, running ones get 10 s, and the rest is cut off."""
        async with anyio.create_task_group() as steps:
            steps.start_soon(self._keep_leases)
            while not stop.is_set():
                leases, wait_s = await self._claim_what_is_due()
                for lease in leases:
                    steps.start_soon(self._step, lease)
                if not leases:
                    await self._rest(stop, wait_s)
            self._stopping = True
            await self.drain()
            steps.cancel_scope.cancel()

    async def drain(self) -> None:
        """Returns when no step runs, or after 10 s."""
        with anyio.move_on_after(DRAIN_S):
            while self._held:
                await self._freed.wait()

    async def step_until_idle(self) -> None:
        """For tests: handles everything that is due now, one by one, and what becomes due by that."""
        for _ in range(ENDLESS):
            leases = await self._claim(self._kinds_in_turn())
            if not leases:
                return
            for lease in leases:
                await self._step(lease)
        raise Bug("steps go on for ever without time passing")

    async def _claim_what_is_due(self) -> tuple[tuple[Lease, ...], float]:
        """Leases; or none, and for how many seconds there will be none if nobody commits anything."""
        if self._is_full():
            return (), POLL_S
        try:
            due, now = await self._store.read(lambda tx: (tx.due(), tx.now()))  # cheaper than a claim in vain
            times = {kind: at for kind, at in due.items() if kind in self._handlers}
            kinds = tuple(kind for kind in self._kinds_in_turn() if kind in times and times[kind] <= now)
            if kinds:
                return await self._claim(kinds), BUSY_POLL_S
            return (), min(((at - now).total_seconds() for at in times.values()), default=POLL_S)
        except Exception:  # the database may be restarting; the loop must outlive that
            log.exception("claim_failed")
            await self._clock.sleep(POLL_S)
            return (), BUSY_POLL_S

    def _kinds_in_turn(self) -> tuple[Kind, ...]:
        """Every kind is first in turn."""
        self._kinds.append(self._kinds.pop(0))
        return tuple(self._kinds)

    async def _claim(self, kinds: Sequence[Kind]) -> tuple[Lease, ...]:
        """Leases with a token of their own, so that a step which outlived its lease holds nothing."""
        token = self._chance.ulid()
        room = self._limit - len(self._held)

        def claim(tx: Tx) -> tuple[Lease, ...]:
            leases: tuple[Lease, ...] = ()
            for kind in kinds:
                if len(leases) < room:
                    leases += tx.claim(kind, limit=room - len(leases), token=token, length=LEASE)
            return leases

        until = self._clock.monotonic() + LEASE.total_seconds()
        leases = await edges.commit(self._store, failpoints.WORKER_CLAIM, claim, durable=False)
        self._held.update(dict.fromkeys(leases, until))
        if leases:
            self._claimed_at = until - LEASE.total_seconds()
        return leases

    def _is_full(self) -> bool:
        return len(self._held) >= self._limit

    async def _step(self, lease: Lease) -> None:
        """One step, and those that follow from it while the row is due at once."""
        held: Lease | None = lease
        while held is not None:
            held = await self._one_step(held)

    async def _one_step(self, lease: Lease) -> Lease | None:
        _seconds_left.set(lambda: self._held.get(lease, 0.0) - self._clock.monotonic())
        kept = None
        try:
            kept = await self._handle(lease)
            if kept is not None and self._stopping:
                leaving, kept = kept, None
                await self._leave(leaving, timedelta(0))
        except Exception:  # the row keeps its lease until it ends, then it is tried again
            log.exception("step_outcome_lost", kind=lease.kind, id=lease.id)
        finally:
            until = self._held.pop(lease, 0.0)
            if kept is not None:
                self._held[kept] = until
            self._freed.set()
            self._freed = anyio.Event()
        return kept

    async def _leave(self, lease: Lease, again: timedelta) -> None:
        """As the row is, to whoever looks then."""
        await edges.commit(self._store, failpoints.WORKER_LEAVE, lambda tx: tx.release(lease, due_at=tx.now() + again))

    async def _handle(self, lease: Lease) -> Lease | None:
        bound = log.bind(kind=lease.kind, id=lease.id, tries=lease.tries)
        try:
            return await self._handlers[lease.kind](lease)
        except NotMine:
            bound.warning("lease_lost")
        except NewerRow as error:
            bound.error("row_not_understood", error=str(error))
            await self._leave(lease, UNREADABLE_AGAIN)
        except Bug as error:
            bound.exception("step_failed")
            await self._failed(lease, error)
        except GpurunError as error:
            bound.warning("step_delayed", error=str(error))
            await self._failed(lease, error)
        except Exception as error:  # noqa: BLE001 - a bug of an adapter must not stop the other rows
            bound.exception("step_failed")
            await self._failed(lease, error)
        return None

    async def _failed(self, lease: Lease, error: Exception) -> None:
        wait = backoff(lease.tries)
        if isinstance(error, Transient) and error.retry_after_s is not None:
            wait = max(wait, timedelta(seconds=min(error.retry_after_s, PAUSE_MAX_S)))
        # what nobody foresaw may hold anything, and a row's error can end up in a comment
        foreseen = isinstance(error, GpurunError) and not isinstance(error, Bug)
        text = str(error) if foreseen else UNFORESEEN

        def fail(tx: Tx) -> None:
            if tx.failed(lease, text, due_at=tx.now() + wait) and (run_id := _shown_on(tx, lease)):
                tx.raise_rev(run_id, final=False, urgent=False)  # what is tried again, and why, is shown

        await edges.commit(self._store, failpoints.WORKER_FAILED, fail)

    async def _keep_leases(self) -> None:
        while True:
            await self._clock.sleep(RENEW_EVERY_S)
            try:
                await self._renew()
            except Exception:  # `still_mine` is what protects the steps
                log.exception("renew_failed")

    async def _renew(self) -> None:
        held = sorted(self._held, key=lambda lease: (lease.kind, lease.token))
        groups = [
            (kind, token, [lease.id for lease in leases])
            for (kind, token), leases in groupby(held, key=lambda lease: (lease.kind, lease.token))
        ]
        if not groups:
            return
        until = self._clock.monotonic() + LEASE.total_seconds()
        renewed = await edges.commit(
            self._store,
            failpoints.WORKER_RENEW,
            lambda tx: {
                (token, row_id)
                for kind, token, row_ids in groups
                for row_id in tx.renew(kind, row_ids, token, length=LEASE)
            },
            durable=False,
        )
        for lease in held:
            if (lease.token, lease.id) in renewed and lease in self._held:
                self._held[lease] = until

    async def _rest(self, stop: anyio.Event, wait_s: float) -> None:
        """Until a commit, a free place where there is none, `stop`, or so many seconds; at most half a second."""
        beat_s = self._claimed_at + BEAT_S - self._clock.monotonic()
        async with anyio.create_task_group() as race:

            async def first(wait: Callable[[], Awaitable[object]]) -> None:
                await wait()
                race.cancel_scope.cancel()

            race.start_soon(first, lambda: self._store.committed(timeout_s=POLL_S))
            race.start_soon(first, stop.wait)
            if self._is_full():
                race.start_soon(first, self._freed.wait)
            await self._clock.sleep(min(max(wait_s, beat_s), POLL_S))
            race.cancel_scope.cancel()


def _shown_on(tx: Tx, lease: Lease) -> str:
    """The run whose comment says what this row tries again; empty when none does."""
    if lease.kind is Kind.RUN:
        return lease.id
    attempt = tx.attempt(lease.id) if lease.kind is Kind.ATTEMPT else None
    return attempt.run_id if attempt is not None and attempt.state is AttemptState.CHOSEN else ""
