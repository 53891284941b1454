"""A run from its request to its end, shown while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import anyio

from gpurun.cli.interrupts import Interrupts
from gpurun.cli.screen import Screen
from gpurun.domain.errors import Bug
from gpurun.domain.run import Attempt, AttemptState, RunState, Verdict
from gpurun.flow.facts import gather
from gpurun.flow.request import request_cancel, request_end
from gpurun.ports.store import Tx
from gpurun.report.facts import RunFacts
from gpurun.run.decide_run import end
from gpurun.wiring import House

LOOK_EVERY_S = 0.1
"""How late a line of the log is shown at most."""
PAUSE_S = 0.025
"""Between two looks: a run's steps come in bursts, and a look costs the engine's own time."""
READ_BYTES = 1024 * 1024
CANCEL_GRACE_S = 20.0
"""What the agent gives a job between SIGTERM and SIGKILL."""
CANCEL_LIMIT = timedelta(seconds=2)
"""How long a cancelled run that has no container, and never will, may take to say so: a call may be under way."""
LEFT = "Left without waiting. The container ends by its own deadline at the latest; the next `gpurun run` removes it."


async def carry_out(house: House, run_id: str, screen: Screen, *, interrupts: Interrupts | None = None) -> RunFacts:
    """Runs the engine until the run has ended and nothing of it is left.

    The first interrupt asks the job to stop, the second destroys its container. Raises Interrupted at the third.
    """
    interrupts = interrupts or Interrupts()
    async with interrupts.ending_at(3, LEFT), anyio.create_task_group() as tasks:
        tasks.start_soon(house.live, anyio.Event())
        tasks.start_soon(_heed, house, run_id, screen, interrupts)
        await _Follower(house, run_id, screen, interrupts).follow()
        tasks.cancel_scope.cancel()
    return _told_cancelled(await house.store.read(partial(gather, run_id=run_id, links=house.links)))


async def _heed(house: House, run_id: str, screen: Screen, interrupts: Interrupts) -> None:
    await interrupts.reach(1)
    attempts = await house.store.read(lambda tx: tx.attempts(run_id))
    screen.notes(f"{_stopping(attempts)} Once more: at once.")
    await request_cancel(house.store, run_id, interrupts.first)
    await interrupts.reach(2)
    screen.notes("Removing the container. Once more: without waiting for that.")
    await request_end(house.store, run_id, interrupts.first)


def _stopping(attempts: Sequence[Attempt]) -> str:
    """What a cancel does to a run that is this far: only an agent can end a job, and give its artifacts away."""
    if any(one.claimed_at is not None for one in attempts):
        grace = f"{CANCEL_GRACE_S:.0f} s"
        return f"Stopping: the job has {grace} to end, then its artifacts are kept and its container removed."
    return "Stopping: nothing of the job has begun, and what was made ready for it is removed."


@dataclass(frozen=True, slots=True)
class _Seen:
    """How much of whose log was shown."""

    attempt_id: str = ""
    log_bytes: int = 0


class _Follower:
    """Looks at the rows again and again."""

    def __init__(self, house: House, run_id: str, screen: Screen, interrupts: Interrupts) -> None:
        self._house = house
        self._run_id = run_id
        self._screen = screen
        self._interrupts = interrupts

    async def follow(self) -> None:
        """Until the run is over."""
        seen = _Seen()
        unread = False
        while True:
            look: Callable[[Tx], tuple[RunFacts, _Seen, bytes]] = partial(self._look, seen=seen)
            facts, seen, piece = await self._house.store.read(look)
            if facts.attempt is not None:
                self._screen.hides(partial(self._hide, facts.attempt))
            self._screen.shows(facts, piece)
            if self._screen.broken and not unread:
                unread = True
                self._interrupts.add("output that nobody reads")
            if not piece and _is_over(facts):
                return
            if not piece:
                await anyio.sleep(PAUSE_S)
                await self._house.store.committed(timeout_s=LOOK_EVERY_S)

    def _hide(self, attempt: Attempt, text: str) -> str:
        return self._house.http.maskers.of(attempt).text(text)

    def _look(self, tx: Tx, seen: _Seen) -> tuple[RunFacts, _Seen, bytes]:
        """Only what changes on the screen; a report reads more."""
        run, attempts = tx.run(self._run_id), tx.attempts(self._run_id)
        if run is None:
            raise Bug(f"run {self._run_id} vanished")
        facts = RunFacts(run=run, now=tx.now(), attempts=attempts)
        if facts.attempt is None:
            return facts, seen, b""
        if facts.attempt.id != seen.attempt_id:
            seen = _Seen(facts.attempt.id)
        piece = tx.read_log(facts.attempt.id, offset=seen.log_bytes, max_bytes=READ_BYTES)
        return facts, replace(seen, log_bytes=seen.log_bytes + len(piece)), piece


def _is_over(facts: RunFacts) -> bool:
    left = [a for a in facts.attempts if a.state not in (AttemptState.GONE, AttemptState.VOID)]
    return not left and (facts.run.state is RunState.ENDED or _never_began(facts, facts.now))


def _never_began(facts: RunFacts, now: datetime) -> bool:
    """Cancelled without an attempt: whoever would add one decides on the row again, and sees the cancel."""
    asked_at = facts.run.cancel_at
    return not facts.attempts and asked_at is not None and now >= asked_at + CANCEL_LIMIT


def _told_cancelled(facts: RunFacts) -> RunFacts:
    if facts.run.state is RunState.ENDED:
        return facts
    run = end(facts.run, Verdict.CANCELLED, facts.now, reason="asked", detail=f"Cancelled by {facts.run.cancel_by}.")
    return replace(facts, run=run)
