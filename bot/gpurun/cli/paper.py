"""What commands that print and end write on."""

from __future__ import annotations

import sys

from rich.console import Console, RenderableType

AS_WIDE_AS_NEEDED = 4096
"""Columns. Without a terminal nothing is cut or folded: a script reads it."""


class Paper(Console):
    """A console that leaves a closed pipe to whoever ends the process."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 (rich calls this while it handles the error, and would exit with 1)


def paper() -> Console:
    """stdout: coloured on a terminal, plain elsewhere. What its encoding lacks is shown as `?`."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    console = Paper(highlight=False)
    return console if console.is_terminal else Paper(highlight=False, width=AS_WIDE_AS_NEEDED)


def lay_out(console: Console, what: RenderableType) -> None:
    """Without a terminal no line ends in spaces."""
    if console.is_terminal:
        console.print(what)
        return
    with console.capture() as captured:
        console.print(what)
    for line in captured.get().splitlines():
        console.out(line.rstrip())
