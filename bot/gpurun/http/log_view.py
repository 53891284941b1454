"""The log of an attempt as views need it: cleaned, from an offset, perhaps as it grows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from gpurun.domain.run import Attempt, Run
from gpurun.domain.text import clean_log
from gpurun.http.run_view import has_ended
from gpurun.ports.clock import Clock
from gpurun.ports.store import Store, Tx
from gpurun.telemetry.clean import clean_whole_lines, whole_lines

WINDOW_BYTES = 256 * 1024
FOLLOW_EVERY_S = 0.25

Shown = tuple[Attempt | None, str]
"""Some of a log as people see it, and whose it is."""

HideOf = Callable[[Attempt | None], Awaitable[Callable[[str], str]]]
"""What masks the words of an attempt by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """Some of a log, read together with the truth about its run."""

    run: Run
    attempt: Attempt | None
    data: bytes
    offset: int
    ended: bool
    """No more bytes will come after the ones that are stored."""

    @property
    def at_end(self) -> bool:
        """Everything that was stored is in it."""
        return len(self.data) < WINDOW_BYTES

    @property
    def lines(self) -> bytes:
        """The part that later bytes do not change."""
        if self.ended and self.at_end:
            return self.data
        return self.data[: whole_lines(self.data)]

    @property
    def text(self) -> str:
        """`lines` as people see them."""
        return self.shown(self.lines)

    def shown(self, lines: bytes) -> str:
        """The same for the end of `lines`."""
        return clean_log(lines) if self.ended and self.at_end else clean_whole_lines(lines)

    @property
    def next(self) -> int:
        """Offset behind `lines`."""
        return self.offset + len(self.lines)

    @property
    def partial(self) -> bytes:
        """The line that is being written."""
        return self.data[len(self.lines) :] if self.at_end else b""


def read_piece(tx: Tx, run_id: str, number: int | None, offset: int) -> LogPiece | None:
    """From `offset`, at most `WINDOW_BYTES`. None when there is no such run; `number` None means the latest attempt."""
    run = tx.run(run_id)
    if run is None:
        return None
    attempt = chosen(tx.attempts(run_id), number)
    data = tx.read_log(attempt.id, offset=offset, max_bytes=WINDOW_BYTES) if attempt else b""
    return LogPiece(run=run, attempt=attempt, data=data, offset=offset, ended=has_ended(run, attempt))


def chosen(attempts: tuple[Attempt, ...], number: int | None) -> Attempt | None:
    """The attempt with that number; the latest for None."""
    if number is None:
        return attempts[-1] if attempts else None
    return next((attempt for attempt in attempts if attempt.number == number), None)


async def cleaned(store: Store, run_id: str, number: int | None, offset: int) -> AsyncIterator[Shown]:
    """Texts up to the end as it is now."""
    while piece := await store.read(partial(read_piece, run_id=run_id, number=number, offset=offset)):
        if piece.at_end:
            yield piece.attempt, clean_log(piece.data)
            return
        yield piece.attempt, piece.text
        offset = piece.next


async def hidden(shown: AsyncIterator[Shown], hide_of: HideOf) -> AsyncIterator[bytes]:
    """UTF-8 without secrets: what surrounded one in the log, and hid it from the masks, may have been dropped.

    Asked for each text anew: a page may be opened before its attempt, and before the claim that gives it secrets.
    """
    async for attempt, text in shown:
        hide = await hide_of(attempt)
        yield hide(text).encode()


async def followed(store: Store, clock: Clock, run_id: str, number: int | None, offset: int) -> AsyncIterator[Shown]:
    """Texts of whole lines as they are stored, until the attempt has a result and everything was read."""
    while piece := await store.read(partial(read_piece, run_id=run_id, number=number, offset=offset)):
        if number is None and piece.attempt:
            number = piece.attempt.number
        if piece.lines:
            yield piece.attempt, piece.text
            offset = piece.next
        elif piece.ended:
            return
        else:
            await clock.sleep(FOLLOW_EVERY_S)


async def raw(store: Store, attempt_id: str, offset: int) -> AsyncIterator[bytes]:
    """The stored bytes up to the end as it is now."""
    while data := await store.read(partial(_stored, attempt_id=attempt_id, offset=offset)):
        yield data
        offset += len(data)


def _stored(tx: Tx, *, attempt_id: str, offset: int) -> bytes:
    return tx.read_log(attempt_id, offset=offset, max_bytes=WINDOW_BYTES)
