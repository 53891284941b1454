"""The log stream: masked, and not longer than its quota."""

from __future__ import annotations

from gpurun_agent.protocol import OWN, Foreign

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpurun_agent.mask import Masker
    from gpurun_agent.uplink import Stream


ROOM = 256
"""Bytes of the quota that are left for the lines that tell of it."""


def in_one_line(text: str) -> str:
    """With what is not printable written out: names that a job chose must not make lines that look like ours."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class Log:
    """Takes output as it comes. The agent's own lines start with `::gpurun:: `.

    What exceeds the quota is discarded: the kept output is a beginning of what was printed, a line says so at once, and
    the last line how much it was.
    """

    def __init__(self, stream: Stream, masker: Masker, quota: int) -> None:
        self._stream = stream
        self._masker = masker
        self._quota = quota
        # A quota of 0 is none: nobody asks for a log of nothing.
        self._left = max(quota - ROOM, 0) if quota else 1 << 62
        self._over = False
        self._discarded = 0
        self._at_line_start = True
        self._foreign = Foreign()

    @property
    def full(self) -> bool:
        """Reading should wait."""
        return self._stream.full

    def feed(self, data: bytes) -> None:
        """Output of a command."""
        if self._over:
            self._discarded += len(data)
        else:
            self._put(self._foreign.take(self._masker.feed(data)))

    def say(self, text: str) -> None:
        """One line of the agent's own, after everything that was fed. Not beyond the quota."""
        self.flush()
        line = self._masker.whole(self._line(text))
        if not self._over and len(line) <= self._left:
            self._put(line)

    def flush(self) -> None:
        """What was held back as a possible secret: the output ended."""
        self._put(self._foreign.take(self._masker.flush()))

    def close(self) -> None:
        """Nothing follows."""
        self.flush()
        if self._over:
            told = "the log ends here: %d bytes of output were discarded; GPURUN_LOG_QUOTA_MIB of the server keeps more"
            self._append(self._line(told % self._discarded))
        self._stream.close()

    def _put(self, data: bytes) -> None:
        if self._over:
            self._discarded += len(data)
            return
        kept = data[: self._left]
        self._left -= len(kept)
        self._append(kept)
        if len(kept) < len(data):
            self._over = True
            self._discarded = len(data) - len(kept)
            told = "the log reached its quota of %d bytes; what follows is discarded"
            self._append(self._line(told % self._quota))

    def _line(self, text: str) -> bytes:
        lead = b"" if self._at_line_start else b"\n"
        return lead + OWN + b" " + in_one_line(text).encode("utf-8", "replace") + b"\n"

    def _append(self, data: bytes) -> None:
        if data:
            self._at_line_start = data.endswith(b"\n")
            self._stream.append(data)
