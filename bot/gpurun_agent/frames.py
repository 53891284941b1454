"""What the bot could not be told, as lines of the agent's own output: providers keep that, and the bot reads it.

`gpurun_agent.protocol` says what the lines look like.
"""

from __future__ import annotations

import binascii
import os

from gpurun_agent import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpurun_agent.backlog import Backlog

PIECE = 2964
"""Bytes in a frame: with base64, attempt and offset it stays below `protocol.MAX_FRAME`."""

_BLOCK = 256 * PIECE


class Frames:
    """Writes to `fd`. A reader who is gone is no error: then there is nobody left to tell."""

    def __init__(self, attempt: str, fd: int = 1) -> None:
        self._attempt = attempt.encode("ascii", "replace")
        self._fd = fd
        # Whoever printed before may have left a line without an end.
        self._lead = b"\n"

    def rest(self, stream: str, backlog: Backlog, first: int, last: int) -> None:
        """Everything that `backlog` still holds. Of more than `first + last` bytes only the first and the last ones."""
        if backlog.end - backlog.start > first + last:
            self._from(stream, backlog, backlog.start + first)
            backlog.forget(backlog.end - last)
        self._from(stream, backlog, backlog.end)

    def end(self, fields: bytes) -> None:
        """The records of `finish`."""
        self._write(protocol.FRAME_END, b"", fields)

    def _from(self, stream: str, backlog: Backlog, end: int) -> None:
        while backlog.start < end:
            at = backlog.start
            block = backlog.peek(at, min(_BLOCK, end - at))
            for start in range(0, len(block), PIECE):
                self._write(protocol.FRAME_LOG, b"%s %d " % (stream.encode(), at + start), block[start : start + PIECE])
            backlog.forget(at + len(block))

    def _write(self, kind: bytes, about: bytes, data: bytes) -> None:
        # In one call, so that no line of the boot script comes in between (PIPE_BUF, pipe(7)).
        line = self._lead + kind + self._attempt + b" " + about + binascii.b2a_base64(data, newline=False) + b"\n"
        self._lead = b""
        try:
            os.write(self._fd, line)
        except OSError:
            pass
