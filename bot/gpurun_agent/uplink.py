"""An append-only stream to the bot: each byte once, kept until the bot calls it durable."""

from __future__ import annotations

import time

from gpurun_agent import protocol
from gpurun_agent.contact import Pause, worth_another_try
from gpurun_agent.wire import Answer, Line, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpurun_agent.backlog import Backlog
    from gpurun_agent.contact import Contact
    from gpurun_agent.loop import Loop, Timer

QUIET_S = 0.05
"""Appends are at least so far apart: a line printed after a quiet moment leaves at once, a flood leaves in blocks."""

FIRST_S = 0.03
"""The first append waits so long: a command that is over by then has its whole log in one."""

BLOCK = 256 * 1024
"""So much is sent without waiting for `QUIET_S`."""

DURABLE_POLL_S = 0.5

MAX_HELD = 1024 * 1024
"""A rest up to this length is a possible secret that the bot holds back; more is an append taken in part."""


class Stream:
    """Sends what is appended. `lost` tells, for people, why the rest was given up."""

    def __init__(self, name: str, loop: Loop, line: Line, contact: Contact, backlog: Backlog) -> None:
        self.next = 0
        self.lost = ""
        self._target = protocol.PREFIX + "streams/" + name
        self._loop = loop
        self._line = line
        self._contact = contact
        self._backlog = backlog
        self._pause = Pause()
        self._timer: Timer | None = None
        self._sent_at = 0.0
        self._sent_end = 0
        self._held_below = 0
        self._closed = False
        self._over = False
        self._last_words = False

    @property
    def full(self) -> bool:
        """The writer should wait."""
        return self._backlog.full and not self._over

    @property
    def done(self) -> bool:
        """Closed, and everything is durable or given up."""
        everything = self.next == self._backlog.end == self._backlog.start
        return self._over or self._contact.revoked or (self._closed and everything)

    @property
    def end(self) -> int:
        """Bytes that belong to the stream: all that were appended, or all that the bot took of a lost one."""
        return self.next if self._over else self._backlog.end

    @property
    def kept(self) -> Backlog:
        """What is not durable yet."""
        return self._backlog

    def append(self, data: bytes) -> None:
        """Sends `data` soon."""
        if data and not self._over:
            if not self._backlog.end:
                self._sent_at = time.monotonic() - QUIET_S + FIRST_S
            self._backlog.append(data)
            self._kick()

    def close(self) -> None:
        """Nothing follows."""
        self._closed = True
        self._wake()

    def _kick(self) -> None:
        if self._line.busy or self._timer is not None or self._over or self._contact.revoked:
            return
        pending = self._backlog.ready(self.next)
        if not pending and self._backlog.start == self._backlog.end:
            return
        if not pending:
            self._later(DURABLE_POLL_S, self._send)
            return
        if self._backlog.end <= self._held_below and not self._closed:
            return
        quiet_s = self._sent_at + QUIET_S - time.monotonic()
        if quiet_s > 0 and pending < BLOCK and not self._closed:
            self._later(quiet_s, self._send)
        else:
            self._send()

    def _wake(self) -> None:
        """Whatever the pause was for, the world changed."""
        self._loop.forget(self._timer)
        self._timer = None
        self._kick()

    def _later(self, seconds: float, call: object) -> None:
        def due() -> None:
            self._timer = None
            call()  # type: ignore[operator]  # one of the two methods below

        self._timer = self._loop.after(seconds, due)

    def _send(self) -> None:
        if self._line.busy:
            return
        data = self._backlog.peek(self.next, protocol.MAX_APPEND)
        self._sent_at = time.monotonic()
        self._sent_end = self.next + len(data)
        self._last_words = self._closed and self._sent_end == self._backlog.end
        target = "%s?offset=%d%s" % (self._target, self.next, "&end=1" if self._last_words else "")
        self._line.send(Request("PUT", target, data), self._answered)

    def _answered(self, answer: Answer | None, why: str) -> None:
        if answer is None or worth_another_try(answer.status):
            self._later(self._pause.next(), self._send)
            return
        self._contact.hear(answer)
        if answer.status == 200:
            self._taken(answer)
        elif answer.status == 409:
            self._move(answer.number("next", -1))
        elif not self._contact.revoked:
            self._give_up("the bot refused more of it (%d)" % answer.status)
        self._kick()

    def _taken(self, answer: Answer) -> None:
        rest = self._sent_end - answer.number("next", self._sent_end)
        self._held_below = self._sent_end if 0 < rest <= MAX_HELD and not self._last_words else 0
        if self._held_below or not rest:
            self._pause.reset()
            self.next = self._sent_end - rest
        else:
            self._move(self._sent_end - rest)
        self._backlog.forget(min(answer.number("durable", 0), self.next))

    def _move(self, offset: int) -> None:
        """Goes on at `offset`; not in a hurry when that is no progress."""
        if offset == self.next:
            self._later(self._pause.next(), self._send)
        elif self._backlog.start <= offset <= self._backlog.end:
            self._pause.reset()
            self.next = offset
        else:
            self._give_up("the bot asked for byte %d, which is not kept" % offset)

    def _give_up(self, why: str) -> None:
        self._over = True
        self.lost = why
        self._backlog.forget(self._backlog.end)
