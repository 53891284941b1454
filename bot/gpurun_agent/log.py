"""The log stream: masked, and not longer than its quota."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpurun_agent.mask import Masker
    from gpurun_agent.uplink import Stream


class Log:
    """Takes output as it comes. The agent's own lines start with `::gpurun:: `."""

    def __init__(self, stream: Stream, masker: Masker, quota: int) -> None:
        self._stream = stream
        self._masker = masker
        self._last_line = b"\n::gpurun:: the log reached its quota of %d bytes; the rest is discarded\n" % quota
        # A quota of 0 is none: nobody asks for a log of nothing.
        self._left = max(quota - len(self._last_line), 0) if quota else 1 << 62
        self._at_line_start = True

    @property
    def full(self) -> bool:
        """Reading should wait."""
        return self._stream.full

    def feed(self, data: bytes) -> None:
        """Output of a command."""
        self._put(self._masker.feed(data))

    def say(self, text: str) -> None:
        """One line of the agent's own, after everything that was fed."""
        self.flush()
        lead = b"" if self._at_line_start else b"\n"
        self._put(self._masker.whole(lead + b"::gpurun:: " + text.encode("utf-8", "replace") + b"\n"))

    def flush(self) -> None:
        """What was held back as a possible secret: the output ended."""
        self._put(self._masker.flush())

    def close(self) -> None:
        """Nothing follows."""
        self.flush()
        self._stream.close()

    def _put(self, data: bytes) -> None:
        if not data or self._left < 0:
            return
        if len(data) > self._left:
            data = data[: self._left] + self._last_line
            self._left = -1
        else:
            self._left -= len(data)
        self._at_line_start = data.endswith(b"\n")
        self._stream.append(data)
