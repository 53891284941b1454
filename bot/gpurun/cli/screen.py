"""What a person or a script sees of `gpurun run`."""

from __future__ import annotations

import sys
from typing import Protocol

from rich.console import Console
from rich.markdown import Markdown
from rich.status import Status
from rich.text import Text

from gpurun.adapters.local.checkout import LocalState
from gpurun.domain.ids import CommitSha
from gpurun.domain.run import RunState
from gpurun.report.facts import RunFacts
from gpurun.report.headline import status
from gpurun.report.terminal import render_terminal, run_result
from gpurun.telemetry.clean import clean, whole_lines

DIRTY_SHOWN = 3


class Screen(Protocol):
    """Told of everything in order."""

    def starts(self, job: str, state: LocalState, sha: CommitSha) -> None:
        """Before anything runs."""
        ...

    def shows(self, facts: RunFacts, piece: bytes) -> None:
        """What is new: the state, and the next bytes of the log."""
        ...

    def cancels(self) -> None:
        """Somebody pressed Ctrl-C."""
        ...

    def ends(self, facts: RunFacts) -> None:
        """After the container is gone."""
        ...


class _Lines:
    """Bytes in, whole clean lines out."""

    def __init__(self) -> None:
        self._kept = b""

    def take(self, piece: bytes) -> str:
        data = self._kept + piece
        cut = whole_lines(data)
        self._kept = data[cut:]
        return clean(data[:cut])

    def rest(self) -> str:
        data, self._kept = self._kept, b""
        return clean(data)


class PeopleScreen:
    """Log on stdout; a status line below it on a terminal, or a line for each phase elsewhere."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._status: Status | None = None
        self._word = ""
        self._lines = _Lines()

    def starts(self, job: str, state: LocalState, sha: CommitSha) -> None:
        self._console.print(Text(f"gpurun {job} · {state.repo.name} at {sha[:12]}", style="bold"))
        if state.dirty:
            shown = ", ".join(state.dirty[:DIRTY_SHOWN])
            more = f" and {len(state.dirty) - DIRTY_SHOWN} more" if len(state.dirty) > DIRTY_SHOWN else ""
            self._console.print(
                Text(f"Uncommitted changes are part of this run ({shown}{more}): a snapshot, not HEAD.", style="yellow")
            )
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()

    def shows(self, facts: RunFacts, piece: bytes) -> None:
        self._print(self._lines.take(piece))
        now = status(facts)
        word = f"{now.word}: {clean(now.note.encode())}" if now.note else now.word
        if word == self._word or facts.run.state is RunState.ENDED:
            return
        self._word = word
        if self._status is not None:
            self._status.update(Text(word))
        elif not now.note.startswith("pulling"):
            self._console.print(Text(f"· {word}", style="dim"))

    def cancels(self) -> None:
        self._console.print(Text("Stopping; the container goes first.", style="yellow"))

    def ends(self, facts: RunFacts) -> None:
        self._print(self._lines.rest())
        if self._status is not None:
            self._status.stop()
        self._console.print()
        self._console.print(Markdown(render_terminal(facts)))

    def _print(self, text: str) -> None:
        if text:
            self._console.print(Text(text.removesuffix("\n")))


class JsonScreen:
    """The raw log on stderr, one JSON object on stdout."""

    def starts(self, job: str, state: LocalState, sha: CommitSha) -> None:
        del job, state, sha

    def shows(self, facts: RunFacts, piece: bytes) -> None:
        del facts
        sys.stderr.buffer.write(piece)
        sys.stderr.flush()

    def cancels(self) -> None:
        """The result will say it."""

    def ends(self, facts: RunFacts) -> None:
        sys.stdout.write(run_result(facts).model_dump_json(indent=2) + "\n")
