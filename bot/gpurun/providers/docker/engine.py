"""The connection to one Docker Engine, and its errors in our words."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from gpurun.domain.errors import GpurunError, ProviderRefused, ProviderUnavailable

if TYPE_CHECKING:
    from docker.api.client import APIClient

T = TypeVar("T")

READ_TIMEOUT_S = 18
"""Per request. Create is at most network + create + start, which must stay below 45 s together with the look-ups."""
THREADS = 32
_NEVER_SENT = (FileNotFoundError, ConnectionRefusedError, PermissionError)


class Engine:
    """Connects on first use (`import docker` costs 0.2 s) and again after `close`."""

    def __init__(self, docker_host: str) -> None:
        self._docker_host = docker_host
        self._client: APIClient | None = None
        self._socket_path = ""
        self._lock = threading.Lock()
        self._threads: anyio.CapacityLimiter | None = None

    async def call(self, ask: Callable[[APIClient], T]) -> T:
        """`ask(client)` in a thread; vendor errors pass through untranslated. A cancelled caller does not wait."""
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(THREADS)
        return await anyio.to_thread.run_sync(lambda: ask(self.client()), limiter=self._threads, abandon_on_cancel=True)

    async def safe(self, ask: Callable[[APIClient], T], *, to: str) -> T:
        """`call` for what may be repeated. `to` completes "could not …".

        Raises: ProviderUnavailable, ProviderRefused.
        """
        try:
            return await self.call(ask)
        except vendor_errors() as exc:
            raise translated(exc, to=to) from exc

    def client(self) -> APIClient:
        """Blocking; for threads."""
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    @property
    def socket_path(self) -> str:
        """Where the engine that `client` connected to listens; empty before."""
        return self._socket_path

    def _connect(self) -> APIClient:
        import docker.utils
        from docker.constants import DEFAULT_UNIX_SOCKET

        where = {"base_url": self._docker_host} if self._docker_host else docker.utils.kwargs_from_env()
        address = where.get("base_url") or DEFAULT_UNIX_SOCKET
        if not address.startswith(("unix://", "http+unix://")):
            raise ProviderRefused(
                f"The Docker Engine at {address} is not on this machine, and the agent's socket can only be mounted "
                "from here: engines on other hosts are not in this version.",
                kind="invalid",
            )
        self._socket_path = _path_of(address)
        _probe(self._socket_path)
        return docker.APIClient(**where, version="auto", timeout=READ_TIMEOUT_S)

    async def close(self) -> None:
        """Lets the connections go."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


def _path_of(address: str) -> str:
    return "/" + address.partition("://")[2].lstrip("/")


def _probe(socket_path: str) -> None:
    """Raises OSError when nobody listens: the SDK would leave its socket open then."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(READ_TIMEOUT_S)
        probe.connect(socket_path)


def vendor_errors() -> tuple[type[Exception], ...]:
    """What the docker SDK raises; our own errors are none of these."""
    import docker.errors
    import requests
    import urllib3

    return (
        docker.errors.DockerException,
        docker.errors.StreamParseError,
        requests.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
        KeyError,  # what the SDK makes of JSON without the key that it looks for, such as a proxy's error page
    )


def status_of(exc: BaseException) -> int | None:
    """The HTTP status that the engine answered with; None when it did not answer."""
    status = getattr(exc, "status_code", None)
    return status if isinstance(status, int) else None


def never_sent(exc: BaseException) -> bool:
    """True when there was nobody to send the request to, so that it had no effect."""
    return any(isinstance(cause, _NEVER_SENT) for cause in _chain(exc))


def _chain(exc: BaseException) -> list[BaseException]:
    """The error with its causes. requests and urllib3 keep them in `args` and `reason`."""
    found: list[BaseException] = []
    todo: list[object] = [exc]
    while todo:
        item = todo.pop()
        if isinstance(item, BaseException) and item not in found:
            found.append(item)
            todo += [*item.args, item.__cause__, item.__context__, getattr(item, "reason", None)]
        elif isinstance(item, tuple):
            todo += item
    return found


def translated(exc: BaseException, *, to: str) -> GpurunError:
    """The error of a call that is safe to repeat."""
    status = status_of(exc)
    sentence = f"Docker could not {to}: {words(exc)}"
    if status in {401, 403}:
        return ProviderRefused(sentence, kind="auth")
    if status is not None and 400 <= status < 500:
        return ProviderRefused(sentence, kind="invalid")
    return ProviderUnavailable(sentence)


def words(exc: BaseException) -> str:
    """What the engine said, in one line of at most 300 characters."""
    if never_sent(exc):
        return "no Docker Engine answers there"
    said = getattr(exc, "explanation", None) or str(exc) or type(exc).__name__
    if isinstance(said, bytes):
        said = said.decode(errors="replace")
    line = " ".join(str(said).split())
    return line if len(line) <= 300 else line[:297] + "..."
