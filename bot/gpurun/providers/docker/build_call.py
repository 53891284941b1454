"""One build on the engine: the request, its events, and an end from another thread.

The SDK's `build` sends every login of docker's config.json along, knows no CPU limit, and cannot be interrupted. The
request is a POST of a tar, so it is made here. It is the engine's own builder (`version` is not sent): BuildKit over
the API knows no limit of memory and no network but the engine's default one (docs/decisions/0024).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import urlencode

from gpurun.domain.build import DOCKERFILE, BuildPlan
from gpurun.providers.docker.container import Limits

CPU_PERIOD_US = 100_000
MAX_LINE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NotBuilt(Exception):
    """The engine's answer to the request itself."""

    status: int
    said: str


class BuildCall:
    """One request. `stop` may be called from any thread, at any time."""

    def __init__(self, socket_path: str, api_version: str) -> None:
        self._connection = _OverSocket(socket_path)
        self._version = api_version

    def events(self, query: Mapping[str, str], context: IO[bytes]) -> Generator[Mapping[str, Any], None, None]:
        """As they come. Raises: NotBuilt, OSError and http.client.HTTPException when the connection ends."""
        path = f"/v{self._version}/build?{urlencode(query)}"
        headers = {"Content-Type": "application/x-tar", "Transfer-Encoding": "chunked"}
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may answer before it has all
                self._connection.request("POST", path, body=_pieces(context), headers=headers, encode_chunked=True)
            answer = self._connection.getresponse()
            if answer.status != 200:
                raise NotBuilt(answer.status, _message(answer.read(MAX_LINE_BYTES)))
            while line := answer.readline(MAX_LINE_BYTES):
                if event := _event(line):
                    yield event
        finally:
            self._connection.close()

    def stop(self) -> None:
        """The engine ends the build when nobody listens any more."""
        at = self._connection.sock
        if at is not None:
            with contextlib.suppress(OSError):
                at.shutdown(socket.SHUT_RDWR)


def query_of(build: BuildPlan, *, limits: Limits, network: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Of the request. Memory with swap, so that there is no swap beyond it."""
    memory = str(limits.memory_mib * 1024 * 1024)
    return {
        "dockerfile": DOCKERFILE,
        "t": str(build.image),
        "buildargs": json.dumps(dict(build.all_args)),
        "labels": json.dumps(dict(labels)),
        "networkmode": network,
        "memory": memory,
        "memswap": memory,
        "shmsize": str(limits.shm_mib * 1024 * 1024),
        "rm": "1",
        "forcerm": "1",
        **({"cpuperiod": str(CPU_PERIOD_US), "cpuquota": str(int(limits.cpus * CPU_PERIOD_US))} if limits.cpus else {}),
    }


class _OverSocket(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(256 * 1024):
        yield piece


def _event(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _message(body: bytes) -> str:
    said = _event(body).get("message")
    return str(said) if said else body.decode("utf-8", "replace")
