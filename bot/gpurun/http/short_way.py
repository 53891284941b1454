"""The short way of an append on an attempt's own socket, for the thousandth time from the same agent.

An append of an agent that was heard before needs nothing but its commit: no task, no ASGI messages, no headers to look
through. What has another form than the agent gives it, or comes in parts, or needs to wait for anything else, goes the
usual way, and so does the first append of an agent, which proves its token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gpurun.domain.stream import OF_AGENTS, StreamName

_FORM = re.compile(
    rb"PUT /agent/v1/streams/(log|metrics)\?offset=([0-9]{1,15}) HTTP/1\.1\r\n"
    rb"Host: [!-~]{1,255}\r\n"
    rb"Authorization: Bearer ([!-~]{1,255})\r\n"
    rb"Content-Length: ([0-9]{1,7})\r\n\r\n",
    re.IGNORECASE,
)
"""The whole head, as `gpurun_agent.wire` writes it."""


@dataclass(frozen=True, slots=True)
class WholeAppend:
    """A request that came in one piece."""

    name: StreamName
    offset: int
    token: str = field(repr=False)
    data: bytes = field(repr=False)


Answered = Callable[[int, bytes, Iterable[tuple[bytes, bytes]]], None]
"""Hears status, body and headers, once, in the event loop."""

Take = Callable[[str, WholeAppend, Answered], bool]
"""Of one attempt: True when it will be answered, False when it must go the usual way."""

_NAMES = {name.value.encode(): name for name in OF_AGENTS}
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


def whole_append(data: bytes) -> WholeAppend | None:
    """What the bytes ask for, when they are one append and nothing else."""
    head = _FORM.match(data)
    if head is None or len(data) - head.end() != int(head[4]):
        return None
    return WholeAppend(_NAMES[head[1].lower()], int(head[2]), head[3].decode("ascii"), data[head.end() :])


class ShortWay(HttpToolsProtocol):
    """uvicorn's protocol, which looks at what comes between two requests before it reads it as HTTP."""

    attempt_id = ""
    take: Take | None = None
    _in_message = False
    _waiting: bytes | None = None
    """What came since a request went the short way; None when no such one is open."""
    _closing = False

    def data_received(self, data: bytes) -> None:
        if self._waiting is not None:
            self._waiting += data
            self.flow.pause_reading()
        elif not self._goes_short(data):
            super().data_received(data)

    def on_message_begin(self) -> None:
        self._in_message = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._in_message = False
        super().on_message_complete()

    def shutdown(self) -> None:
        if self._waiting is None:
            super().shutdown()
        else:
            self._closing = True

    def _goes_short(self, data: bytes) -> bool:
        if self.take is None or self._in_message or not (self.cycle is None or self.cycle.response_complete):
            return False
        append = whole_append(data)
        if append is None or not self.take(self.attempt_id, append, self._answered):
            return False
        self._unset_keepalive_if_required()
        self._waiting = b""
        return True

    def _answered(self, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        waiting, self._waiting = self._waiting, None
        if self.transport.is_closing():
            return
        self.transport.write(_answer(status, body, headers))
        if self._closing:
            self.transport.close()
            return
        self.on_response_complete()
        if waiting:
            self.data_received(waiting)


def _answer(status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    lines = b"".join(b"%s: %s\r\n" % header for header in headers)
    return b"HTTP/1.1 %d %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, _PHRASES[status], lines, len(body), body)
