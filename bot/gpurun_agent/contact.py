"""What the bot said last, and requests that are repeated until it says something."""

from __future__ import annotations

import time

from gpurun_agent.wire import Answer, Line, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from gpurun_agent.loop import Loop, Timer

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0

_TRY_AGAIN = (408, 425, 429)
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
    """One request, made anew by `build` for every try, until there is an answer that a repetition would not change."""

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
        self._try()

    def drop(self) -> None:
        """No more tries; what is under way is cut."""
        self._loop.forget(self._timer)
        if self.answer is None:
            self._line.close()

    def moved(self) -> None:
        """The last try brought something on: the next pause is short again."""
        self._pause.reset()

    def _try(self) -> None:
        self._line.send(self._build(), self._done)

    def _done(self, answer: Answer | None, why: str) -> None:
        if answer is not None:
            self._contact.hear(answer)
            if not worth_another_try(answer.status):
                self.answer = answer
                return
            why = "the bot answered %d" % answer.status
        self.trouble = why
        self._timer = self._loop.after(self._pause.next(), self._try)
