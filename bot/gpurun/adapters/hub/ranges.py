"""Ranges of a large file from the hub's store, read by threads straight into the part.

An event loop that is handed 64 KiB at a time is several times slower than a disk; a thread that reads 1 MiB into the
same buffer again and again, with the lock of the interpreter let go, is not.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import re
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from gpurun.adapters.hub.part import Part
from gpurun.domain.errors import HubUnavailable

if TYPE_CHECKING:
    import httpx2

CONNECTIONS = 4
"""At a time, in all."""
PIECE_BYTES = 1024 * 1024
_TRIES = 3
"""Of one range, when connections break."""
_LOOK_AGAIN_S = 1.0
_TOTAL = re.compile(r"bytes \d+-\d+/(\d+)")


class NoRanges(Exception):
    """The store answered otherwise than with the range: its address is too old, or it has no ranges or other bytes."""


class NotWritten(Exception):
    """The disk refuses it."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause.strerror)
        self.cause = cause


class _Stopped(Exception):
    """Nobody waits any more."""


class _Span:
    """What is left of a range."""

    __slots__ = ("at", "stop")

    def __init__(self, at: int, stop: int) -> None:
        self.at = at
        self.stop = stop


class Ranges:
    """What is missing of one part, from one address of the store."""

    def __init__(self, url: httpx2.URL, part: Part, size: int, *, idle_timeout_s: float) -> None:
        self._url = url
        self._part = part
        self._size = size
        self._idle_timeout_s = idle_timeout_s
        self._todo = deque(_Span(at, stop) for at, stop in part.missing())
        self._stopped = threading.Event()
        self._sockets: dict[http.client.HTTPConnection, socket.socket] = {}

    async def fetch(self, threads: anyio.CapacityLimiter) -> str:
        """The SHA-256 of the whole. `threads` limits the connections. Raises: NoRanges, NotWritten, HubUnavailable."""
        sha256: list[str] = []
        failed: list[Exception] = []

        async def in_thread(act: Callable[[], None], limiter: anyio.CapacityLimiter) -> None:
            try:
                await anyio.to_thread.run_sync(act, abandon_on_cancel=True, limiter=limiter)
            except (NoRanges, NotWritten, HubUnavailable) as error:
                failed.append(error)
                tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(min(CONNECTIONS, len(self._todo))):
                    tasks.start_soon(in_thread, self._work, threads)
                tasks.start_soon(in_thread, lambda: sha256.append(self._hash()), anyio.CapacityLimiter(1))
        finally:
            self._stop()
        if failed:
            raise failed[0]
        return sha256[0]

    def _stop(self) -> None:
        """Threads that nobody waits for end at once: what they wait for is shut down."""
        self._stopped.set()
        for one in tuple(self._sockets.values()):
            with contextlib.suppress(OSError):
                # That of TLS forgets its keys, and a thread would read what is still encrypted.
                socket.socket.shutdown(one, socket.SHUT_RDWR)

    # --- in threads

    def _work(self) -> None:
        """Ranges, until none is left."""
        buffer = memoryview(bytearray(PIECE_BYTES))
        connection: http.client.HTTPConnection | None = None
        try:
            while self._todo and not self._stopped.is_set():
                with contextlib.suppress(IndexError):  # another thread took the last
                    connection = self._bring(self._todo.popleft(), connection, buffer)
        except _Stopped:
            pass
        finally:
            self._forget(connection)

    def _bring(
        self, span: _Span, connection: http.client.HTTPConnection | None, buffer: memoryview
    ) -> http.client.HTTPConnection | None:
        """The connection, if it can be used again."""
        for left in reversed(range(_TRIES)):
            try:
                connection = connection or self._connect()
                self._read(connection, span, buffer)
            except (OSError, http.client.HTTPException, UnicodeError) as error:  # the last: of a host's name
                self._forget(connection)
                connection = None
                if self._stopped.is_set():
                    raise _Stopped from error
                if not left:
                    why = error.strerror if isinstance(error, OSError) else None  # other words may hold the address
                    raise HubUnavailable(
                        f"The connection to {self._url.host} broke ({why or type(error).__name__})."
                    ) from None
            except BaseException:
                self._forget(connection)
                raise
            else:
                if connection.sock is None:  # the store closed it behind its answer
                    self._forget(connection)
                return connection if connection.sock is not None else None
        raise AssertionError

    def _connect(self) -> http.client.HTTPConnection:
        import httpx2

        host, timeout = self._url.host, self._idle_timeout_s
        if self._url.scheme == "https":
            context = httpx2.create_ssl_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, self._url.port, timeout=timeout, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, self._url.port, timeout=timeout)
        connection.connect()
        self._sockets[connection] = connection.sock
        if self._stopped.is_set():
            self._forget(connection)
            raise _Stopped
        return connection

    def _forget(self, connection: http.client.HTTPConnection | None) -> None:
        if connection is not None:
            self._sockets.pop(connection, None)
            connection.close()

    def _read(self, connection: http.client.HTTPConnection, span: _Span, buffer: memoryview) -> None:
        headers = {"Range": f"bytes={span.at}-{span.stop - 1}", "Accept-Encoding": "identity", "User-Agent": "gpurun"}
        connection.request("GET", self._url.raw_path.decode("ascii"), headers=headers)
        response = connection.getresponse()
        total = _TOTAL.fullmatch(response.getheader("Content-Range", ""))
        if response.status != 206 or total is None or int(total[1]) != self._size:
            raise NoRanges
        while span.at < span.stop:
            if self._stopped.is_set():
                raise _Stopped
            n_bytes = response.readinto(buffer[: span.stop - span.at])
            if self._stopped.is_set():
                raise _Stopped
            if not n_bytes:
                raise ConnectionError("it ended early")
            try:
                self._part.write_at(span.at, buffer[:n_bytes])
            except OSError as error:
                raise NotWritten(error) from error
            span.at += n_bytes
        response.read()  # the end of the answer: then the connection is free

    def _hash(self) -> str:
        """Of the whole, behind the threads that bring it; what it reads is still in memory."""
        try:
            return self._hash_of_file()
        except OSError as error:
            raise NotWritten(error) from error

    def _hash_of_file(self) -> str:
        digest = hashlib.sha256()
        buffer = memoryview(bytearray(PIECE_BYTES))
        at = 0
        with self._part.path.open("rb", buffering=0) as file:
            while at < self._size and not self._stopped.is_set():
                end = self._part.wait_beyond(at, _LOOK_AGAIN_S)
                while at < end and not self._stopped.is_set():
                    n_bytes = file.readinto(buffer[: end - at])
                    if not n_bytes:
                        raise OSError(errno.EIO, "it became shorter")
                    digest.update(buffer[:n_bytes])
                    at += n_bytes
        return digest.hexdigest()
