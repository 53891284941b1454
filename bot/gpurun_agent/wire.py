"""HTTP/1.1 as far as the agent needs it, without blocking: one connection, one request at a time.

`http.client` would cost 24 ms at the start and is missing from small images.
"""

from __future__ import annotations

import _socket
import errno
import time

from gpurun_agent import protocol
from gpurun_agent.loop import READ, WRITE, Loop, Timer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

SILENCE_S = 30.0
"""A connection that moves no byte for so long while an answer is due is broken."""

MAX_HEAD = 64 * 1024
MAX_BODY = 8 * 1024 * 1024
"""Of an answer without a sink. The largest is that to a claim: masks of 2 MiB, names and hashes of model files of
3 MiB, the values of secrets, and the texts of a file of 64 KiB."""

_READ_SIZE = 256 * 1024


class WireError(Exception):
    """The other side does not speak as expected, or not at all."""


class Address:
    """`unix:<path>`, `http://host[:port][/base]` or `https://…`. Raises WireError."""

    __slots__ = ("base", "host", "path", "port", "scheme")

    def __init__(self, text: str) -> None:
        self.path = self.base = ""
        self.host, self.port = "localhost", 0
        self.scheme, _, rest = text.partition(":")
        if self.scheme == "unix":
            self.path = rest
            return
        if self.scheme not in ("http", "https") or not rest.startswith("//"):
            raise WireError("the uplink is none of unix:, http://, https://")
        place, slash, base = rest[2:].partition("/")
        self.base = (slash + base).rstrip("/")
        host, colon, port = place.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = place, "443" if self.scheme == "https" else "80"
        self.host, self.port = host.strip("[]"), int(port)


class Request:
    """What is asked. `body` is sent as it is; bytes of a good answer go to `sink`, if there is one."""

    __slots__ = ("body", "headers", "method", "sink", "target")

    def __init__(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        headers: str = "",
        sink: Callable[[int, bytes], None] | None = None,
    ) -> None:
        self.method = method
        self.target = target
        self.body = body
        self.headers = headers
        self.sink = sink


class Answer:
    """What came back."""

    __slots__ = ("_fields", "body", "headers", "status")

    def __init__(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status
        self.headers = headers
        self.body = b""
        self._fields: list[tuple[str, bytes]] | None = None

    def fields(self) -> list[tuple[str, bytes]]:
        """The records of the body; none when it holds something else."""
        if self._fields is None:
            try:
                self._fields = protocol.decode(self.body)
            except protocol.BadRecords:
                self._fields = []
        return self._fields

    def number(self, name: str, default: int) -> int:
        """The value of the record `name`."""
        for found, value in self.fields():
            if found == name and value.isdigit():
                return int(value)
        return default

    def text(self) -> str:
        """The beginning of the body, for people."""
        return self.body[:500].decode("utf-8", "replace").strip()


class Line:
    """A connection that opens itself anew when needed. `token`, if there is one, goes into every request."""

    def __init__(self, loop: Loop, address: Address) -> None:
        self._loop = loop
        self._address = address
        self.token = ""
        self._socket: Any = None
        self._step: Callable[[], None] = self._exchange
        self._again: tuple[type[BaseException], ...] = (BlockingIOError,)
        self._out: list[memoryview] = []
        self._in = bytearray()
        self._request: Request | None = None
        self._answer: Answer | None = None
        self._left: int | None = 0
        self._chunked = False
        self._failures = 0
        self._heard_at = 0.0
        self._silence: Timer | None = None
        self._done: Callable[[Answer | None, str], None] | None = None

    @property
    def busy(self) -> bool:
        """An answer is awaited."""
        return self._done is not None

    def send(self, request: Request, done: Callable[[Answer | None, str], None]) -> None:
        """Calls `done(answer, "")`, or `done(None, why)` when the connection broke first; never from within."""
        self._request, self._answer, self._done = request, None, done
        host = (
            self._address.host
            if self._address.port in (0, 80, 443)
            else "%s:%d"
            % (
                self._address.host,
                self._address.port,
            )
        )
        head = "%s %s%s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n%s\r\n" % (
            request.method,
            self._address.base,
            request.target,
            host,
            "Authorization: Bearer %s\r\n" % self.token if self.token else "",
            len(request.body),
            request.headers,
        )
        if len(request.body) < 65536:
            self._out = [memoryview(head.encode("ascii") + request.body)]
        else:
            self._out = [memoryview(head.encode("ascii")), memoryview(request.body)]
        self._in.clear()
        self._heard_at = time.monotonic()
        if self._silence is None:
            self._silence = self._loop.after(SILENCE_S, self._check_silence)
        try:
            if self._socket is None:
                self._open()
            self._loop.watch(self._socket.fileno(), READ | WRITE, self._ready)
        except (OSError, WireError) as exc:
            why = str(exc)
            self._loop.after(0, lambda: self._break(why) if self._request is request else None)

    def close(self) -> None:
        """Drops the connection; an awaited answer never comes."""
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self._done = self._request = None
        self._out = []

    # connecting

    def _open(self) -> None:
        address = self._address
        if address.scheme == "unix":
            self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            self._socket.setblocking(False)  # noqa: FBT003  # its only form
            self._socket.connect(address.path)
            self._step = self._exchange
            return
        places = _socket.getaddrinfo(address.host, address.port, 0, _socket.SOCK_STREAM)
        # The next one after a failure: the first may be of a network that is not there (IPv6).
        family, kind, _, _, place = places[self._failures % len(places)]
        if address.scheme == "https":
            self._open_tls(int(family), int(kind))
        else:
            self._socket = _socket.socket(family, kind)
        self._socket.setblocking(False)  # noqa: FBT003  # its only form
        # Without it every request waits 40 ms for the other side's delayed acknowledgement.
        self._socket.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        code = self._socket.connect_ex(place)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, "cannot connect to %s" % address.host)
        self._step = self._connected

    def _open_tls(self, family: int, kind: int) -> None:
        import socket
        import ssl

        context = ssl.create_default_context()
        self._again = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
        plain = socket.socket(family, kind)
        self._socket = context.wrap_socket(
            plain, server_hostname=self._address.host, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )

    def _connected(self) -> None:
        code = self._socket.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
        if code:
            raise OSError(code, "cannot connect to %s" % self._address.host)
        self._step = self._shake if self._address.scheme == "https" else self._exchange
        self._step()

    def _shake(self) -> None:
        try:
            self._socket.do_handshake()
        except self._again as exc:
            wanted = WRITE if type(exc).__name__ == "SSLWantWriteError" else READ
            self._loop.watch(self._socket.fileno(), wanted, self._ready)
            return
        self._loop.watch(self._socket.fileno(), READ | WRITE, self._ready)
        self._step = self._exchange

    # one request and its answer

    def _ready(self) -> None:
        self._heard_at = time.monotonic()
        try:
            self._step()
        except (OSError, WireError, ValueError) as exc:
            self._break(str(exc) or type(exc).__name__)

    def _exchange(self) -> None:
        self._write()
        self._read()

    def _write(self) -> None:
        while self._out:
            piece = self._out[0]
            try:
                sent = self._socket.send(piece[: 1024 * 1024])
            except self._again:
                return
            except (BrokenPipeError, ConnectionResetError):
                # It may have answered before it closed (413, 401): read what is there, then break.
                self._out = []
                return
            if sent == len(piece):
                self._out.pop(0)
            else:
                self._out[0] = piece[sent:]
        self._loop.watch(self._socket.fileno(), READ, self._ready)

    def _read(self) -> None:
        """Everything that is there: TLS keeps bytes of its own that poll cannot see."""
        while self._socket is not None:
            try:
                data = self._socket.recv(_READ_SIZE)
            except self._again:
                return
            if not data:
                self._end_of_connection()
                return
            if self._done is None:
                raise WireError("bytes that nobody asked for")
            self._in += data
            self._parse()
            if self._done is None:
                return

    def _end_of_connection(self) -> None:
        if self._answer is not None and self._left is None and not self._chunked:
            self._finish()
        else:
            raise WireError("the connection was closed")

    def _parse(self) -> None:
        if self._answer is None:
            end = self._in.find(b"\r\n\r\n")
            if end < 0:
                if len(self._in) > MAX_HEAD:
                    raise WireError("an endless head")
                return
            self._begin(bytes(self._in[:end]))
            del self._in[: end + 4]
        if self._chunked:
            self._parse_chunks()
            return
        if self._left is None:
            self._take(len(self._in))
            return
        self._left -= self._take(min(self._left, len(self._in)))
        if self._left == 0:
            self._finish()

    def _begin(self, head: bytes) -> None:
        lines = head.split(b"\r\n")
        words = lines[0].split(b" ", 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise WireError("no HTTP answer")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        self._answer = Answer(int(words[1]), headers)
        self._chunked = headers.get(b"transfer-encoding", b"").lower() == b"chunked"
        length = headers.get(b"content-length")
        self._left = int(length) if length is not None else None
        if self._answer.status in (204, 304):
            self._chunked, self._left = False, 0

    def _take(self, n_bytes: int) -> int:
        if n_bytes:
            assert self._answer is not None
            assert self._request is not None
            data = bytes(self._in[:n_bytes])
            del self._in[:n_bytes]
            if self._request.sink is not None and self._answer.status in (200, 206):
                self._request.sink(self._answer.status, data)
            elif len(self._answer.body) + n_bytes <= MAX_BODY:
                self._answer.body += data
            else:
                raise WireError("an endless answer")
        return n_bytes

    def _parse_chunks(self) -> None:
        """`_left` counts what is missing of the current chunk with its line end; None between chunks."""
        while True:
            if self._left is None:
                end = self._in.find(b"\r\n")
                if end < 0:
                    return
                size = int(bytes(self._in[:end]).split(b";")[0], 16)
                if size == 0:
                    # Trailers are not used by the bot; the empty line ends the answer.
                    if len(self._in) < end + 4:
                        return
                    del self._in[: end + 4]
                    self._finish()
                    return
                del self._in[: end + 2]
                self._left = size + 2
            if self._left > 2:
                self._left -= self._take(min(self._left - 2, len(self._in)))
                if self._left > 2:
                    return
            if len(self._in) < 2:
                return
            del self._in[:2]
            self._left = None

    def _finish(self) -> None:
        answer, done = self._answer, self._done
        assert answer is not None
        assert done is not None
        until_close = self._left is None and not self._chunked
        last = bool(self._out) or until_close or answer.headers.get(b"connection", b"").lower() == b"close"
        self._done = self._request = self._answer = None
        if last:
            self.close()
        done(answer, "")

    def _break(self, why: str) -> None:
        done = self._done
        self.close()
        self._failures += 1
        if done is not None:
            done(None, why)

    def _check_silence(self) -> None:
        self._silence = None
        if self._done is None:
            return
        left_s = self._heard_at + SILENCE_S - time.monotonic()
        if left_s > 0:
            self._silence = self._loop.after(left_s, self._check_silence)
        else:
            self._break("no answer for %d s" % SILENCE_S)


def quote(text: bytes, keep: bytes = b"") -> bytes:
    """Percent-encoding of all but letters, digits, `-._~` and `keep`."""
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~" + keep
    return b"".join(b"%c" % byte if byte in plain else b"%%%02X" % byte for byte in text)
