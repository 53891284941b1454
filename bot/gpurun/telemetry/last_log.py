"""What an agent that could not reach the bot left in its own output (`gpurun_agent.frames`), read back.

Whoever runs in the instance can print such lines too. They say something about their own attempt and nothing else, and
whatever they say, reading them ends and raises nothing.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gpurun.domain.stream import OF_AGENTS, StreamName
from gpurun_agent import protocol

MAX_FRAMES = 16_384
"""The last ones that are looked at: four times what an agent prints."""

_START = b"::gpurun-"
_LINE = re.compile(
    rb"::gpurun-(?:log|end) 1 ([0-9a-z]{1,40}) (?:(log|metrics) ([0-9]{1,15}) )?([A-Za-z0-9+/]*={0,2})\r?"
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of a stream without a gap."""

    offset: int
    data: bytes

    @property
    def end(self) -> int:
        """Offset behind the last byte."""
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLog:
    """Of one attempt. Nothing in it is masked by us yet."""

    stretches: Mapping[StreamName, tuple[Stretch, ...]] = field(default_factory=dict)
    """In ascending order, with gaps between them."""
    end: Mapping[str, bytes] | None = None
    """What `finish` would have said; None: the agent did not come to its end, or could tell it."""


def read_last_log(printed: bytes, attempt_id: str, mask: Callable[[bytes], bytes]) -> LastLog:
    """`printed` is what the provider kept, perhaps without its beginning. `mask` keeps the length."""
    streams: dict[StreamName, list[Stretch]] = {name: [] for name in OF_AGENTS}
    end: Mapping[str, bytes] | None = None
    for line in _frames(printed):
        match = _LINE.fullmatch(line)
        if match is None or match[1] != attempt_id.encode():
            continue
        try:
            data = base64.b64decode(match[4], validate=True)
            if match[2] is None:
                end = dict(protocol.decode(data))
                continue
        except (binascii.Error, protocol.BadRecords):
            continue
        _add(streams[StreamName(match[2].decode())], Stretch(int(match[3]), data))
    joined = {name: tuple(_joined(pieces, mask)) for name, pieces in streams.items()}
    return LastLog(stretches=joined, end=end)


def log_to_append(last: LastLog, stored: int, *, at_line_start: bool, limit: int) -> bytes:
    """What comes behind the `stored` bytes of the log: the bytes that the bot lacks, and what is known to be missing.

    At most `limit` bytes and the last line.
    """
    out = bytearray()

    def tell(sentence: str) -> None:
        fresh = out.endswith(b"\n") if out else at_line_start
        out.extend(b"" if fresh else b"\n")
        out.extend(f"::gpurun:: {sentence}\n".encode())

    at = stored
    for stretch in last.stretches.get(StreamName.LOG, ()):
        if stretch.end <= at:
            continue
        if stretch.offset > at:
            tell(f"{stretch.offset - at} bytes of the log are missing here: the agent could not reach the bot")
            at = stretch.offset
        out += stretch.data[at - stretch.offset :]
        at = stretch.end
    del out[max(limit, 0) :]
    if last.end is None:
        tell("the log may be incomplete: the agent did not report its end")
    elif (missing := _number(last.end, "log_size") - at) > 0:
        tell(f"{missing} bytes of the log are missing here: the agent could not reach the bot")
    return bytes(out)


def metrics_to_append(last: LastLog, stored: int, *, limit: int) -> bytes:
    """The same for the metrics, where a gap is a line that cannot be read."""
    out = bytearray()
    at = stored
    for stretch in last.stretches.get(StreamName.METRICS, ()):
        if stretch.end > at:
            out += b"\n" if stretch.offset > at else b""
            at = max(at, stretch.offset)
            out += stretch.data[at - stretch.offset :]
            at = stretch.end
    return bytes(out[: max(limit, 0)])


def _frames(printed: bytes) -> list[bytes]:
    """The last lines that look like one, in their order. What floods the output with others costs no more than that."""
    found: list[bytes] = []
    at = len(printed)
    for _ in range(MAX_FRAMES):
        at = printed.rfind(_START, 0, at)
        if at < 0:
            break
        if at == 0 or printed[at - 1 : at] == b"\n":
            end = printed.find(b"\n", at, at + protocol.MAX_FRAME)
            found.append(printed[at:end] if end >= 0 else printed[at : at + protocol.MAX_FRAME])
    return found[::-1]


def _add(series: list[Stretch], piece: Stretch) -> None:
    """An agent prints ascending offsets, once: whatever came before a lower one was not the agent's."""
    if not piece.data:
        return
    if series and piece.offset < series[-1].end:
        series.clear()
    series.append(piece)


def _joined(pieces: list[Stretch], mask: Callable[[bytes], bytes]) -> Iterator[Stretch]:
    """Neighbours become one, so that a secret is seen across their border."""
    begin = 0
    for number, piece in enumerate(pieces):
        last = number + 1 == len(pieces)
        if last or pieces[number + 1].offset != piece.end:
            data = b"".join(one.data for one in pieces[begin : number + 1])
            yield Stretch(pieces[begin].offset, mask(data))
            begin = number + 1


def _number(fields: Mapping[str, bytes], name: str) -> int:
    text = fields.get(name, b"")
    return int(text) if text.isdigit() and len(text) < 16 else 0
