"""What a person or a script sees of `gpurun run`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from rich.console import Console
from rich.status import Status
from rich.text import Text

from gpurun.adapters.local.checkout import LocalState
from gpurun.cli.output import on_github_runner
from gpurun.domain.ids import CommitSha
from gpurun.domain.run import Phase, RunState, Verdict
from gpurun.domain.text import clean, clean_log
from gpurun.report.facts import RunFacts
from gpurun.report.headline import status
from gpurun.report.terminal import Places, RunResult, render_terminal, run_result
from gpurun.report.text import duration
from gpurun.telemetry.clean import clean_whole_lines, whole_lines

DIRTY_SHOWN = 3
LAID_OUT_CHARS = 32 * 1024
"""More at once is written as it is: laying out a million empty lines takes a gigabyte and a minute."""
PEEK_BYTES = 4096
OURS = "::gpurun:: "
"""What lines of the agent in the log start with."""
_PERCENT = re.compile(r" \d+ %(?=,|$)|, step \d+/\d+$")
_PERCENT_OF = re.compile(r" \d+ % of (?=[^,]+(,|$))")
_MOVES = re.compile(r" \d+ %( of [^,]+)?(?=,|$)|, step \d+/\d+$|(?<=quiet for ).+$")
"""What changes all the time; a terminal has a line for that."""
_STYLES = {Verdict.PASSED: "bold green", Verdict.CANCELLED: "bold yellow"}
_AFTER_THE_LOG = (Phase.COLLECTING, Phase.FINISHED)


Masking = Callable[[str], str]


class Screen(Protocol):
    """Told of everything in order."""

    @property
    def broken(self) -> bool:
        """Nobody can read it any more: the pipe or the terminal was closed."""
        ...

    def hides(self, hide: Masking) -> None:
        """From now on `hide` is asked of each text that is shown: what surrounds a secret in the log may be dropped."""
        ...

    def starts(self, job: str, state: LocalState, sha: CommitSha) -> None:
        """Before anything runs."""
        ...

    def shows(self, facts: RunFacts, piece: bytes) -> None:
        """What is new: the state, and the next bytes of the log."""
        ...

    def notes(self, sentence: str) -> None:
        """Something about the command itself."""
        ...

    def ends(self, facts: RunFacts, places: Places) -> None:
        """After the container is gone and the artifacts are where they could be written to."""
        ...

    def fails(self, result: RunResult) -> None:
        """There was no run, or it was left. Why has been told on stderr."""
        ...


class _Lines:
    """Bytes in, whole clean lines out, without secrets."""

    def __init__(self) -> None:
        self._kept = b""
        self.hide: Masking = str

    def take(self, piece: bytes) -> str:
        data = self._kept + piece
        cut = whole_lines(data)
        self._kept = data[cut:]
        return self.hide(clean_whole_lines(data[:cut]))

    def rest(self) -> str:
        data, self._kept = self._kept, b""
        return self.hide(clean_log(data))

    def peek(self) -> str:
        """What a progress bar shows now: the line that has not ended yet."""
        return self.hide(clean_log(self._kept[-PEEK_BYTES:]))


class _Console(Console):
    """Goes quiet when nobody reads it any more, and says so."""

    def __init__(self) -> None:
        super().__init__(highlight=False, soft_wrap=True)
        self.broken = False

    def say(self, text: Text) -> None:
        """Lines, without markup."""
        try:
            self.print(text)
        except OSError:  # the terminal is gone
            self.give_up()

    def pour(self, text: str) -> None:
        """Whole lines as they are; nothing may be shown below them meanwhile."""
        if self.quiet:
            return
        try:
            self.file.write(text)
            self.file.flush()
        except OSError:
            self.give_up()

    def on_broken_pipe(self) -> None:
        """Instead of ending the process, which has a container to remove."""
        self.give_up()

    def give_up(self) -> None:
        """Nothing is written from now on, not even by the interpreter's last flush."""
        self.broken = self.quiet = True
        _send_to_nowhere(sys.stdout.fileno())


def _send_to_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


class PeopleScreen:
    """Log on stdout; a status line below it on a terminal, or a line for each phase elsewhere."""

    def __init__(self) -> None:
        # what the terminal's encoding lacks is shown as `?`
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
        self._console = _Console()
        self._status: Status | None = None
        self._word = ""
        self._since: datetime | None = None
        self._told_error = ""
        self._lines = _Lines()
        self._weights = ""

    @property
    def broken(self) -> bool:
        return self._console.broken

    def hides(self, hide: Masking) -> None:
        self._lines.hide = hide

    def starts(self, job: str, state: LocalState, sha: CommitSha) -> None:
        self._say(f"gpurun {job} · {state.repo.name} at {sha[:12]}", "bold")
        if state.dirty:
            shown = ", ".join(clean(name.encode("utf-8", "replace")) for name in state.dirty[:DIRTY_SHOWN])
            more = f" and {len(state.dirty) - DIRTY_SHOWN} more" if len(state.dirty) > DIRTY_SHOWN else ""
            self._say(
                f"Uncommitted changes are part of this run ({shown}{more}): a snapshot, not {state.sha[:12]}.", "yellow"
            )
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()

    def shows(self, facts: RunFacts, piece: bytes) -> None:
        text = self._lines.take(piece)
        late = facts.attempt is not None and facts.attempt.phase in _AFTER_THE_LOG
        if late:
            self._log(text)
        self._state(facts)
        if not late:
            self._log(text)

    def notes(self, sentence: str) -> None:
        self._say(sentence, "yellow")

    def ends(self, facts: RunFacts, places: Places) -> None:
        self._log(self._lines.rest())
        self._stop()
        report = render_terminal(facts, places=places)
        self._say("")
        self._say(report.headline, _STYLES.get(facts.run.verdict or Verdict.LOST, "bold red"))
        for part in (report.because, report.table):
            if part:
                self._say(part)

    def fails(self, result: RunResult) -> None:
        self._stop()

    def _state(self, facts: RunFacts) -> None:
        if facts.run.state is RunState.ENDED:
            return
        now = status(facts)
        word = f"{now.word}: {clean(now.note.encode())}" if now.note else now.word
        news = _MOVES.sub("", word) != _MOVES.sub("", self._word)
        if news:
            self._since = facts.now
        self._word = word
        if self._status is None and news:
            self._say(f"· {_PERCENT.sub('', _PERCENT_OF.sub(', ', word))}", "dim")
        if self._status is not None:
            self._trouble(facts.run.last_error)
            self._status.update(self._line(facts))

    def _trouble(self, error: str) -> None:
        """Why something is tried again; the status line has no room for it."""
        if error and error != self._told_error:
            self._say(f"Trying again: {clean(error.encode())}", "yellow")
        self._told_error = error or self._told_error

    def _line(self, facts: RunFacts) -> Text:
        """State, how long it has been so, and what the job's progress bar shows."""
        lasted = (facts.now - self._since).total_seconds() if self._since else 0.0
        phase = facts.attempt.phase if facts.attempt else None
        doing = self._weights if phase is Phase.WEIGHTS else self._lines.peek()
        parts = [self._word, duration(lasted) if lasted >= 1 else "", doing]
        text = Text(" · ".join(part for part in parts if part), no_wrap=True, overflow="ellipsis", end="")
        text.truncate(max(20, self._console.width - 4), overflow="ellipsis")
        return text

    def _log(self, text: str) -> None:
        if not text:
            return
        if len(text) > LAID_OUT_CHARS:
            self._pour(text)
            return
        laid_out = Text()
        for line in text.removesuffix("\n").split("\n"):
            if line.startswith(OURS + "weights "):
                self._weights = line.removeprefix(OURS + "weights ")
            laid_out.append(line + "\n", "dim" if line.startswith(OURS) else "")
        laid_out.right_crop(1)
        self._console.say(laid_out)

    def _pour(self, text: str) -> None:
        if self._status is not None:
            self._status.stop()
        self._console.pour(text if text.endswith("\n") else text + "\n")
        if self._status is not None:
            self._status.start()

    def _say(self, text: str, style: str = "") -> None:
        self._console.say(Text(clean(text), style))

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


class JsonScreen:
    """The log on stderr, raw unless that is a terminal; one JSON object on stdout."""

    def __init__(self) -> None:
        self.broken = False
        self._lines = _Lines() if sys.stderr.isatty() or on_github_runner() else None

    def hides(self, hide: Masking) -> None:
        if self._lines is not None:
            self._lines.hide = hide

    def starts(self, job: str, state: LocalState, sha: CommitSha) -> None:
        del job, state, sha

    def shows(self, facts: RunFacts, piece: bytes) -> None:
        del facts
        self._write(piece if self._lines is None else self._lines.take(piece))

    def notes(self, sentence: str) -> None:
        self._write(f"{clean(sentence)}\n")

    def ends(self, facts: RunFacts, places: Places) -> None:
        if self._lines is not None:
            self._write(self._lines.rest())
        self.fails(run_result(facts, places=places))

    def fails(self, result: RunResult) -> None:
        sys.stdout.write(result.model_dump_json(indent=2) + "\n")

    def _write(self, data: bytes | str) -> None:
        if not data or self.broken:
            return
        try:
            if isinstance(data, str):
                sys.stderr.write(data)
            else:
                sys.stderr.buffer.write(data)
            sys.stderr.flush()
        except OSError:
            self.broken = True
            _send_to_nowhere(sys.stderr.fileno())
