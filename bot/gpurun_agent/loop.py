"""One thread, one poll: file descriptors, timers, signals."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C part of `signal`; the Python part costs 4 ms for its enums
import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

READ = select.POLLIN
WRITE = select.POLLOUT

LONGEST_TICK_S = 0.5
"""Deadlines are looked at this often, whatever else happens."""


class Timer:
    """A call that is due at a time of the monotonic clock."""

    __slots__ = ("call", "due")

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call = call


class Loop:
    """Calls back what is ready. `terminated` becomes true when the process was asked to end."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._ready: dict[int, Callable[[], None]] = {}
        self._timers: list[Timer] = []
        self.terminated = False
        self._listen_to_signals()

    def watch(self, fd: int, events: int, call: Callable[[], None]) -> None:
        """Calls `call` while `fd` is ready for `events`, broken or closed. May be repeated to change either."""
        self._poll.register(fd, events)
        self._ready[fd] = call

    def unwatch(self, fd: int) -> None:
        """Silent when it was not watched. To be called before `fd` is closed."""
        if self._ready.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Calls `call` once, `seconds` from now."""
        timer = Timer(time.monotonic() + seconds, call)
        self._timers.append(timer)
        return timer

    def forget(self, timer: Timer | None) -> None:
        """The call is not made any more; silent when it was."""
        if timer in self._timers:
            self._timers.remove(timer)

    def tick(self, longest_s: float = LONGEST_TICK_S) -> None:
        """Waits for the next thing to do, at most `longest_s`, and does all that is due."""
        wait_s = longest_s
        if self._timers:
            wait_s = min(wait_s, min(timer.due for timer in self._timers) - time.monotonic())
        for fd, _ in self._poll.poll(max(0.0, wait_s) * 1000):
            call = self._ready.get(fd)
            if call is not None:
                call()
        now = time.monotonic()
        due = [timer for timer in self._timers if timer.due <= now]
        for timer in due:
            if timer in self._timers:
                self._timers.remove(timer)
                timer.call()

    def _listen_to_signals(self) -> None:
        self._signalled, wake = os.pipe()
        os.set_blocking(self._signalled, False)
        os.set_blocking(wake, False)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
            _signal.signal(number, self._terminate)
        self.watch(self._signalled, READ, self._drain)

    def _terminate(self, *_: object) -> None:
        self.terminated = True

    def _drain(self) -> None:
        try:
            while os.read(self._signalled, 512):
                pass
        except BlockingIOError:
            pass
