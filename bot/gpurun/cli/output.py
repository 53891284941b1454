"""What becomes of a command whose stdout or stderr cannot be written: one place for all commands."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import click

from gpurun.domain.text import begun_command, clean, no_workflow_commands

UNWRITABLE = 2
"""1 has a meaning of its own for some commands: a difference, a pin that is missing."""
NOBODY_READS = 128 + 13
"""As if SIGPIPE had ended the process."""


def say(text: object = "", *, err: bool = False) -> None:
    """Lines of plain text, which may hold text of others: nothing in it steers a terminal."""
    click.echo(clean(str(text)), err=err)


def on_github_runner() -> bool:
    """Whether GitHub's runner reads what this process prints, and does what some lines of it say."""
    return os.environ.get("GITHUB_ACTIONS") == "true"  # noqa: TID251 - no setting of ours


class Unwritable(OSError):
    """A stream takes nothing. Without an errno: click makes 1 of a closed pipe."""


class NobodyReads(BrokenPipeError):
    """The pipe is closed; without an errno, too."""


def exit_code(command: Callable[[], object]) -> int | str | None:
    """What the command exits with, or the code for output that nobody gets.

    A closed pipe is no word's worth; anything else is told on stderr.
    """
    if sys.stdout is None:  # the next file that is opened would get its place, and what is printed
        _tell("it is closed; use `>/dev/null` for no output")
        return UNWRITABLE
    guards = [_guard("stdout"), _guard("stderr")]
    out = guards[0]
    try:
        code = _code(command)
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, BaseExceptionGroup) as error:
        if isinstance(error, OSError) and not isinstance(error, Unwritable | NobodyReads):
            raise
        lost = [guard for guard in guards if guard is not None and guard.lost]
        if not lost:
            raise
        code = UNWRITABLE if any(guard.why for guard in lost) else NOBODY_READS
    if out is not None and out.why:
        _tell(out.why)
    return code


def _code(command: Callable[[], object]) -> int | str | None:
    try:
        command()
    except SystemExit as end:
        return end.code
    return 0


class _Guarded(io.FileIO):
    """A descriptor. Once it takes nothing it is told once, and written to nowhere from then on."""

    lost = False
    why = ""
    """Empty for a closed pipe."""

    def write(self, data: Any, /) -> int:
        n_bytes = memoryview(data).nbytes
        if self.lost or not n_bytes:  # click writes nothing, and passes over what that raises
            return n_bytes
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError as error:
            self.lost = True
            if error.errno == errno.EPIPE:
                raise NobodyReads("nobody reads this") from error
            self.why = error.strerror or str(error)
            raise Unwritable(self.why) from error


class _ForRunner(io.TextIOWrapper):
    """What is printed in a step of a workflow: GitHub's runner reads it, and nothing in it is a command to it."""

    _line = ""
    """The beginning of the line, as long as it may become one."""

    def write(self, text: str, /) -> int:
        begun = len(self._line)
        safe = no_workflow_commands(self._line + text)
        self._line = begun_command(safe)
        super().write(safe[begun:])
        return len(text)


def _guard(name: str) -> _Guarded | None:
    stream: TextIO | None = getattr(sys, name)
    if stream is None:
        setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (for as long as the process lives)
        return None
    assert isinstance(stream, io.TextIOWrapper)
    raw = _Guarded(stream.fileno(), "wb", closefd=False)
    is_buffered = isinstance(stream.buffer, io.BufferedWriter)
    to_runner = on_github_runner() and not stat.S_ISREG(os.fstat(raw.fileno()).st_mode)
    make = _ForRunner if to_runner else io.TextIOWrapper
    guarded = make(
        io.BufferedWriter(raw) if is_buffered else raw,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    setattr(sys, name, guarded)
    return raw


def _tell(why: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"gpurun: stdout cannot be written: {why}.\n")
            sys.stderr.flush()
