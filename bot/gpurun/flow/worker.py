"""The loop: claims due rows, runs one step for each, and forgets. All memory is in the rows.

A step that dies leaves its row leased; when the lease ends, any worker takes it from what the row says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from itertools import groupby

import anyio
import anyio.lowlevel
import structlog

from gpurun.domain.errors import Bug, GpurunError, Transient
from gpurun.flow import edges, failpoints
from gpurun.ports.clock import Chance, Clock
from gpurun.ports.store import Kind, Lease, Store, Tx
from gpurun.run.timers import backoff

Handler = Callable[[Lease], Awaitable[None]]
"""One step for one row. It gives the row back in its commit; what it raises becomes a later try."""

LEASE = timedelta(seconds=75)
RENEW_EVERY_S = 20.0
POLL_S = 0.5
"""How late the commit of another process is noticed."""
DRAIN_S = 10.0
UNREADABLE_AGAIN = timedelta(minutes=1)
ENDLESS = 10_000
"""Steps without a pause that no test needs."""

log = structlog.get_logger()

_seconds_left: ContextVar[Callable[[], float]] = ContextVar("seconds_left")


class NotMine(Exception):
    """The lease ran out during the step; somebody else owns the row now."""


class Unreadable(Exception):
    """The row holds what this version does not know, a newer state for example. It is left as it is."""


def still_mine(*, for_s: float) -> None:
    """Asked right before a call that cannot be undone: the lease surely lasts for all of it.

    Raises: NotMine.
    """
    if _seconds_left.get()() < for_s:
        raise NotMine


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

    async def run(self, stop: anyio.Event) -> None:
        """Until `stop`; then no new step starts, running ones get 10 s, and the rest is cut off."""
        async with anyio.create_task_group() as steps:
            steps.start_soon(self._keep_leases)
            while not stop.is_set():
                room = self._limit - len(self._held)
                leases = await self._claim_or_rest()
                for lease in leases:
                    steps.start_soon(self._step, lease)
                if len(leases) < room or room == 0:  # else there may be more
                    await self._rest(stop)
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
            leases = await self._claim()
            if not leases:
                return
            for lease in leases:
                await self._step(lease)
        raise Bug("steps go on for ever without time passing")

    async def _claim_or_rest(self) -> tuple[Lease, ...]:
        if len(self._held) >= self._limit:
            return ()
        try:
            return await self._claim()
        except Exception:  # the database may be restarting; the loop must outlive that
            log.exception("claim_failed")
            await self._clock.sleep(POLL_S)
            return ()

    async def _claim(self) -> tuple[Lease, ...]:
        """Leases with a token of their own, so that a step which outlived its lease holds nothing."""
        token = self._chance.ulid()
        room = self._limit - len(self._held)
        self._kinds.append(self._kinds.pop(0))  # every kind is first in turn
        kinds = tuple(self._kinds)

        def claim(tx: Tx) -> tuple[Lease, ...]:
            leases: tuple[Lease, ...] = ()
            for kind in kinds:
                if len(leases) < room:
                    leases += tx.claim(kind, limit=room - len(leases), token=token, length=LEASE)
            return leases

        until = self._clock.monotonic() + LEASE.total_seconds()
        leases = await edges.commit(self._store, failpoints.WORKER_CLAIM, claim)
        self._held.update(dict.fromkeys(leases, until))
        return leases

    async def _step(self, lease: Lease) -> None:
        _seconds_left.set(lambda: self._held.get(lease, 0.0) - self._clock.monotonic())
        try:
            await self._handle(lease)
        except Exception:  # the row keeps its lease until it ends, then it is tried again
            log.exception("step_outcome_lost", kind=lease.kind, id=lease.id)
        finally:
            self._held.pop(lease, None)
            self._freed.set()
            self._freed = anyio.Event()

    async def _handle(self, lease: Lease) -> None:
        bound = log.bind(kind=lease.kind, id=lease.id, tries=lease.tries)
        try:
            await self._handlers[lease.kind](lease)
        except NotMine:
            bound.warning("lease_lost")
        except Unreadable as error:
            bound.error("row_not_understood", error=str(error))
            await edges.commit(
                self._store,
                failpoints.WORKER_LEAVE,
                lambda tx: tx.release(lease, due_at=tx.now() + UNREADABLE_AGAIN),
            )
        except Bug as error:
            bound.exception("step_failed")
            await self._failed(lease, error)
        except GpurunError as error:
            bound.warning("step_delayed", error=str(error))
            await self._failed(lease, error)
        except Exception as error:  # noqa: BLE001 - a bug of an adapter must not stop the other rows
            bound.exception("step_failed")
            await self._failed(lease, error)

    async def _failed(self, lease: Lease, error: Exception) -> None:
        wait = backoff(lease.tries)
        if isinstance(error, Transient) and error.retry_after_s is not None:
            wait = max(wait, timedelta(seconds=error.retry_after_s))
        text = str(error) or type(error).__name__
        await edges.commit(
            self._store,
            failpoints.WORKER_FAILED,
            lambda tx: tx.failed(lease, text, due_at=tx.now() + wait),
        )

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
        )
        for lease in held:
            if (lease.token, lease.id) in renewed and lease in self._held:
                self._held[lease] = until

    async def _rest(self, stop: anyio.Event) -> None:
        """Until a commit, a free place, the next due time, `stop`, or half a second."""
        async with anyio.create_task_group() as race:

            async def first(wait: Callable[[], Awaitable[object]]) -> None:
                await wait()
                race.cancel_scope.cancel()

            race.start_soon(first, lambda: self._store.committed(timeout_s=POLL_S))
            race.start_soon(first, self._freed.wait)
            race.start_soon(first, stop.wait)
            await anyio.lowlevel.checkpoint()  # they listen before we look
            await self._until_due()
            race.cancel_scope.cancel()

    async def _until_due(self) -> None:
        due, now = await self._store.read(lambda tx: (tx.next_due(), tx.now()))
        wait_s = POLL_S if due is None else (due - now).total_seconds()
        # a row that is due and leased by another process stays due: no spinning on it
        await self._clock.sleep(min(wait_s, POLL_S) if wait_s > 0 else POLL_S / 5)
