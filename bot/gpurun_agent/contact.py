"""What the bot said last, and requests that are repeated until it says something."""

from __future__ import annotations

import time

from gpurun_agent.wire import Address, Answer, Line, Request, WireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from gpurun_agent.loop import Loop, Timer

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0

ELSEWHERE_TRIES = 2
"""Failures in a row without a byte in between, after which the bot is asked to pass the bytes on itself."""

_TRY_AGAIN = (408, 425, 429)
_ELSEWHERE = 307
_UNWANTED = (401, 410)


class Contact:
    """Cancel, deadline and revocation, from whichever answer was the last."""

    def __init__(self, deadline: float) -> None:
        self.cancel = False
        self.out_of_disk = False
        """Why it is to end: the job has filled its disk."""
        self.revoked = False
        self.masks = 0
        """Grows with the secrets that the bot knows of."""
        self.deadline = deadline
        """Unix seconds."""

    def hear(self, answer: Answer) -> None:
        """Every answer passes here."""
        if answer.status in _UNWANTED:
            self.revoked = True
        elif 200 <= answer.status < 300:
            self.cancel = self.cancel or answer.number("cancel", 0) == 1
            self.out_of_disk = self.out_of_disk or answer.number("out_of_disk", 0) == 1
            self.masks = max(self.masks, answer.number("masks", 0))
            self.deadline = float(answer.number("deadline", int(self.deadline)))

    def left_s(self) -> float:
        """Until the hard end."""
        return self.deadline - time.time()


class Pause:
    """The growing time between two tries."""

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S

    def next(self) -> float:
        """Seconds to wait now."""
        pause_s = self._next_s
        self._next_s = min(pause_s * 2, LONGEST_PAUSE_S)
        return pause_s

    def reset(self) -> None:
        """It went well."""
        self._next_s = FIRST_PAUSE_S


def worth_another_try(status: int) -> bool:
    """The bot or something before it had a bad moment."""
    return status >= 500 or status in _TRY_AGAIN


class Errand:
    """One request, made anew by `build` for every try, until there is an answer that a repetition would not change.

    The bot may send it elsewhere, to an address that is a secret. Nothing of ours goes there and nothing from there is
    believed but bytes; what fails there comes from the bot in the end.
    """

    def __init__(self, loop: Loop, line: Line, contact: Contact, build: Callable[[], Request]) -> None:
        self.answer: Answer | None = None
        self.trouble = ""
        """Why the last try came to nothing, for people."""
        self._loop = loop
        self._line = line
        self._contact = contact
        self._build = build
        self._pause = Pause()
        self._timer: Timer | None = None
        self._elsewhere: Line | None = None
        self.was_elsewhere = False
        """Bytes may have come from there."""
        self._failed_elsewhere = 0
        self._try()

    @property
    def stays(self) -> bool:
        """It is not to be sent elsewhere any more."""
        return self._failed_elsewhere >= ELSEWHERE_TRIES

    def drop(self) -> None:
        """No more tries; what is under way is cut."""
        self._loop.forget(self._timer)
        self._leave_elsewhere()
        if self.answer is None:
            self._line.close()

    def moved(self) -> None:
        """The last try brought something on: the next pause is short again."""
        self._pause.reset()
        self._failed_elsewhere = 0

    def _try(self) -> None:
        self._line.send(self._build(), self._done)

    def _done(self, answer: Answer | None, why: str) -> None:
        if answer is not None:
            self._contact.hear(answer)
            if answer.status == _ELSEWHERE:
                self._go_elsewhere(answer.headers.get(b"location", b"").decode("latin-1"))
                return
            if not worth_another_try(answer.status):
                self.answer = answer
                return
            why = "the bot answered %d" % answer.status
        self.trouble = why
        self._timer = self._loop.after(self._pause.next(), self._try)

    def _go_elsewhere(self, url: str) -> None:
        request = self._build()
        self.was_elsewhere = True
        try:
            if not url.startswith(("https://", "http://")):
                raise WireError("the bot names no address")
            self._elsewhere = Line(self._loop, Address(url))
        except (WireError, ValueError):  # whose words may hold a part of it
            self._done_elsewhere(None, "the bot names no address")
            return
        self._elsewhere.send(
            Request(request.method, "", headers=request.headers, sink=request.sink), self._done_elsewhere
        )

    def _done_elsewhere(self, answer: Answer | None, why: str) -> None:
        self._leave_elsewhere()
        if answer is not None and answer.status in (200, 206):
            self.answer = answer
            return
        self._failed_elsewhere += 1
        self.trouble = why or "the store answered %d" % (answer.status if answer is not None else 0)
        self._timer = self._loop.after(self._pause.next(), self._try)

    def _leave_elsewhere(self) -> None:
        if self._elsewhere is not None:
            self._elsewhere.close()
            self._elsewhere = None
