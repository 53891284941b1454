"""One thread that writes. Whatever waits when a commit ends shares the next one: the disk is what takes the time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gpurun.adapters.store.database import Database, Done
from gpurun.adapters.store.transaction import Transaction
from gpurun.domain.delivery import Delivery
from gpurun.domain.errors import Bug, StoreBusy
from gpurun.domain.stream import Piece, Taken

T = TypeVar("T")
_Item = TypeVar("_Item", "_Accepted", "_Appended")

GROUP = 256
"""Deliveries of one commit. More would make the first of them wait for the last."""
PIECES = 256
GROUP_BYTES = 8 * 1024 * 1024
"""Of all deliveries or pieces of one commit, about: a delivery may have 25 MiB, and PostgreSQL takes 1 GiB at once."""
GATHER_S = 0.015
"""How long a piece waits for others when many agents talk. The agent goes on meanwhile; a reader does not notice."""
MANY_S = 0.010
"""Many talk when the last commit for another agent is not longer ago."""
JOBS = 16
"""Functions of one commit; some carry 4 MiB of a log."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A function and who waits for it."""

    fn: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    durable: bool


@dataclass(frozen=True, slots=True)
class _Appended:
    """A piece and who waits for it."""

    piece: Piece
    future: asyncio.Future[Taken]


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A delivery and who waits for it."""

    delivery: Delivery
    future: asyncio.Future[bool]


class Writer:
    """Futures are resolved in `loop`, after the commit; `on_news` is called there too."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop, on_news: Callable[[], None]) -> None:
        self._database = database
        self._loop = loop
        self._on_news = on_news
        self._jobs: deque[_Job] = deque()
        self._deliveries: deque[_Accepted] = deque()
        self._pieces: deque[_Appended] = deque()
        self._last_agents: frozenset[str] = frozenset()
        self._last_pieces_at = 0.0
        self._gathering = False
        self._wanted = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="gpurun-writer", daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[[Transaction], T], *, durable: bool = True) -> asyncio.Future[T]:
        """In the event loop. A future that is cancelled before its turn is not run."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._put(self._jobs, _Job(fn, future, durable))
        return future

    def accept(self, delivery: Delivery) -> asyncio.Future[bool]:
        """In the event loop."""
        future: asyncio.Future[bool] = self._loop.create_future()
        self._put(self._deliveries, _Accepted(delivery, future))
        return future

    def append(self, piece: Piece) -> asyncio.Future[Taken]:
        """In the event loop."""
        future: asyncio.Future[Taken] = self._loop.create_future()
        self._put(self._pieces, _Appended(piece, future))
        return future

    def close(self) -> None:
        """Blocks until everything that was submitted is committed."""
        with self._wanted:
            self._closing = True
            self._wanted.notify()
        self._thread.join()

    def _put(self, queue: deque[Any], item: _Job | _Accepted | _Appended) -> None:
        with self._wanted:
            if self._closing:
                raise StoreBusy("The store is closed.")
            queue.append(item)
            if not self._gathering or queue is not self._pieces or len(queue) >= PIECES:
                self._wanted.notify()

    def _work(self) -> None:
        while self._wait():
            group = self._take_deliveries()
            if group:
                self._commit_group(group, self._accept)
            pieces = self._take_pieces()
            if pieces:
                self._commit_group(pieces, self._append)
            jobs = self._take_jobs()
            if len(jobs) == 1:
                self._commit_job(jobs[0])
            elif jobs:
                self._commit_jobs(jobs)

    def _wait(self) -> bool:
        """True when there is something to do; False when it is over."""
        with self._wanted:
            while not (self._jobs or self._deliveries or self._pieces or self._closing):
                self._wanted.wait()
            self._gather_pieces()
            return bool(self._jobs or self._deliveries or self._pieces)

    def _gather_pieces(self) -> None:
        """One commit for many agents: the disk and the transaction cost more than a line. Nothing else waits for it."""
        if self._jobs or self._deliveries or self._closing:
            return
        others = all(item.piece.attempt_id not in self._last_agents for item in self._pieces)
        if not others or time.monotonic() - self._last_pieces_at > MANY_S:
            return
        self._gathering = True
        self._wanted.wait(GATHER_S)
        self._gathering = False

    def _take_deliveries(self) -> list[_Accepted]:
        return _some_of(self._deliveries, GROUP, lambda item: len(item.delivery.body))

    def _take_pieces(self) -> list[_Appended]:
        """In one order everywhere, so that two processes do not wait for each other's rows."""
        taken = _some_of(self._pieces, PIECES, lambda item: len(item.piece.data))
        return sorted(taken, key=lambda item: item.piece.attempt_id)

    def _take_jobs(self) -> list[_Job]:
        waiting = self._jobs
        jobs = [waiting.popleft() for _ in range(min(JOBS, len(waiting)))]
        return [job for job in jobs if not job.future.cancelled()]

    def _commit_group(self, group: Sequence[_Item], commit: Callable[[Sequence[_Item]], Done[list[Any]]]) -> None:
        """One commit, one answer each."""
        try:
            done = commit(group)
        except Exception as exc:  # noqa: BLE001 (the border of the thread: whoever waits gets it)
            if isinstance(exc, Bug) and len(group) > 1:
                # One that no row can hold must not take the others with it.
                for item in group:
                    self._commit_group([item], commit)
            else:
                self._answer([(item.future, exc) for item in group])
            return
        self._answer(list(zip((item.future for item in group), done.value, strict=True)), news=done.news)

    def _accept(self, group: Sequence[_Accepted]) -> Done[list[bool]]:
        return self._database.accept([item.delivery for item in group])

    def _append(self, group: Sequence[_Appended]) -> Done[list[Any]]:
        pieces = [item.piece for item in group]
        done = self._database.append(pieces)
        self._last_agents = frozenset(piece.attempt_id for piece in pieces)
        self._last_pieces_at = time.monotonic()
        return done

    def _commit_jobs(self, jobs: Sequence[_Job]) -> None:
        try:
            durable = any(job.durable for job in jobs)
            outcomes = self._database.transact_together([job.fn for job in jobs], durable=durable)
        except BaseException as exc:  # noqa: BLE001 (the border of the thread: whoever waits gets it)
            self._answer([(job.future, exc) for job in jobs])
            return
        news = any(isinstance(outcome, Done) and outcome.news for outcome in outcomes)
        values = [outcome.value if isinstance(outcome, Done) else outcome for outcome in outcomes]
        self._answer(list(zip((job.future for job in jobs), values, strict=True)), news=news)

    def _commit_job(self, job: _Job) -> None:
        try:
            done: Done[Any] = self._database.transact(job.fn, durable=job.durable)
        except BaseException as exc:  # noqa: BLE001 (the border of the thread: whoever waits gets it)
            self._answer([(job.future, exc)])
            return
        self._answer([(job.future, done.value)], news=done.news)

    def _answer(self, answers: Sequence[tuple[asyncio.Future[Any], Any]], *, news: bool = False) -> None:
        self._loop.call_soon_threadsafe(self._resolve, answers, news)

    def _resolve(self, answers: Sequence[tuple[asyncio.Future[Any], Any]], news: bool) -> None:  # noqa: FBT001
        if news:
            self._on_news()
        for future, answer in answers:
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def _some_of(queue: deque[T], count: int, size_of: Callable[[T], int]) -> list[T]:
    """Takes the oldest, at most `count`, until they have `GROUP_BYTES` together."""
    taken: list[T] = []
    size = 0
    while queue and len(taken) < count and size < GROUP_BYTES:
        item = queue.popleft()
        taken.append(item)
        size += size_of(item)
    return taken
