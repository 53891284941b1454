"""A Unix socket for each attempt, to be mounted into its container: the agent API without any network.

`<folder>/<attempt id>/s/bot.sock`: the outer folder 0700 keeps other users of the host away, the inner one 0755 and the
socket 0666 let a job of any user id in, also one without capabilities. The inner folder is what is mounted: a process
that takes over puts its own socket in the place of the old one, and the container sees it. On disk an attempt that has
a folder has an uplink; nothing else is remembered.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from gpurun.domain.errors import Bug
from gpurun.domain.offer import Uplink
from gpurun.http.asgi import Refusal, refuse
from gpurun.http.callers import SCOPE_ATTEMPT
from gpurun.http.short_way import ShortWay, Take
from gpurun.ports.clock import Chance, Clock
from gpurun.ports.store import Store, Tx
from gpurun_agent import protocol

SOCKET = "bot.sock"
LOOK_EVERY_S = 2.0
MAX_CONNECTIONS = 32
"""Of one attempt: a job must not use up the server's file descriptors."""
KEEP_ALIVE_S = 75
MAX_UNIX_PATH = 107
"""Bytes of `sun_path` without its end, unix(7)."""

_ATTEMPT_ID = re.compile(r"[0-9a-z]{26}")

log = structlog.get_logger()


@dataclass(slots=True)
class _Served:
    server: asyncio.Server
    state: ServerState
    path: str
    inode: int

    def is_in_place(self) -> bool:
        """Nobody has put another socket under the name."""
        return _inode(self.path) == self.inode


class UnixUplinks:
    """`ports.uplink.Uplinks` for containers on this host. Several processes may share `folder`.

    `app` may be the whole server's or just its `AgentApi`; a job reaches the agent API and nothing else.
    """

    def __init__(self, app: ASGIApp, *, folder: Path, chance: Chance, take: Take | None = None) -> None:
        self._app = app
        self._take = take
        """The short way of appends."""
        self._folder = folder
        self._chance = chance
        self._served: dict[str, _Served] = {}
        self._changing = asyncio.Lock()
        self._config = Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._config.load()

    async def open(self, attempt_id: str, provider: str) -> Uplink:
        async with self._changing:
            if not self._is_answered(attempt_id):
                await self._serve(attempt_id)
        return Uplink(kind="unix", address=str(self._inner(attempt_id)))

    async def close(self, attempt_id: str) -> None:
        async with self._changing:
            self._stop(attempt_id)
            shutil.rmtree(self._outer(attempt_id), ignore_errors=True)

    async def reopen(self, attempt_ids: Iterable[str]) -> None:
        """After a restart: whoever of these had an uplink has it again."""
        for attempt_id in attempt_ids:
            if self._outer(attempt_id).is_dir():
                await self.open(attempt_id, "")

    async def keep(self, store: Store, clock: Clock) -> None:
        """For ever: takes over sockets that nobody answers, and lets those of ended attempts go."""
        while True:
            try:
                await self.look(store)
            except Exception:
                # A worker loop: whatever it is, the next round looks again.
                log.exception("uplinks_not_kept")
            await clock.sleep(LOOK_EVERY_S)

    async def look(self, store: Store) -> None:
        """One round of `keep`."""
        here = _attempt_folders(self._folder)

        def read(tx: Tx) -> tuple[frozenset[str], set[str]]:
            live = tx.live_attempt_ids()
            # A folder whose attempt this store does not know belongs to somebody else.
            ended = {known for known in here - live if tx.attempt(known) is not None}
            return live, ended

        live, ended = await store.read(read) if here else (frozenset[str](), set[str]())
        for attempt_id in here & live:
            served = self._served.get(attempt_id)
            if served is None or not served.is_in_place():  # a thousand that are need no more than this
                await self.open(attempt_id, "")
        for attempt_id in ended:
            await self.close(attempt_id)

    async def aclose(self) -> None:
        """Stops answering here. The folders stay, for the process that comes next."""
        async with self._changing:
            for attempt_id in list(self._served):
                self._stop(attempt_id)

    def _is_answered(self, attempt_id: str) -> bool:
        """By us or by another process."""
        path = self._inner(attempt_id) / SOCKET
        served = self._served.get(attempt_id)
        if served is None:
            return _answers(path)
        if served.is_in_place():
            return True
        self._stop(attempt_id)  # somebody took over
        return _answers(path)

    async def _serve(self, attempt_id: str) -> None:
        self._stop(attempt_id)
        listener = _listen(self._outer(attempt_id), self._chance.token(4))
        state = ServerState()
        app = _for_attempt(self._app, attempt_id)

        def protocol() -> asyncio.Protocol:
            made = _Bounded(config=self._config, server_state=state, app_state={})
            made.app, made.attempt_id, made.take = app, attempt_id, self._take
            return made

        server = await asyncio.get_running_loop().create_unix_server(protocol, sock=listener)
        path = str(self._inner(attempt_id) / SOCKET)
        self._served[attempt_id] = _Served(server, state, path, _inode(path))

    def _stop(self, attempt_id: str) -> None:
        served = self._served.pop(attempt_id, None)
        if served is not None:
            served.server.close()
            for connection in list(served.state.connections):
                connection.shutdown()

    def _outer(self, attempt_id: str) -> Path:
        if not _ATTEMPT_ID.fullmatch(attempt_id):
            raise Bug(f"{attempt_id!r} is no attempt id")
        return self._folder / attempt_id

    def _inner(self, attempt_id: str) -> Path:
        return self._outer(attempt_id) / "s"


def _for_attempt(app: ASGIApp, attempt_id: str) -> ASGIApp:
    """Of `app` only the agent API, and that only for one attempt: whoever is on the other side is a job."""

    async def bound(scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith(protocol.PREFIX):
            await refuse(send, Refusal(404, "There is nothing here."))
            return
        scope[SCOPE_ATTEMPT] = attempt_id
        await app(scope, receive, send)

    return bound


class _Bounded(ShortWay):
    """With a limit on connections."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        if len(self.server_state.connections) >= MAX_CONNECTIONS:
            self.transport = transport
            transport.abort()
            return
        super().connection_made(transport)


def _listen(outer: Path, unique: str) -> socket.socket:
    """A listening socket under its final name; an older one loses the name in the same moment."""
    inner = outer / "s"
    inner.mkdir(parents=True, exist_ok=True)
    outer.chmod(0o700)
    inner.chmod(0o755)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _ShortName(inner) as short:
            listener.bind(f"{short}/{unique}")
        (inner / unique).chmod(0o666)
        listener.listen(MAX_CONNECTIONS)
        listener.settimeout(0)
        (inner / unique).rename(inner / SOCKET)
    except BaseException:
        listener.close()
        raise
    return listener


class _ShortName:
    """A name of `folder` that leaves room for a socket's: the folder itself, or its descriptor under /proc."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def __enter__(self) -> str:
        if len(os.fsencode(self._folder)) + 1 + 16 <= MAX_UNIX_PATH:
            return str(self._folder)
        self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._descriptor}"

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def _answers(path: Path) -> bool:
    """Whether some process listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            with _ShortName(path.parent) as short:
                probe.connect(f"{short}/{path.name}")
        except BlockingIOError:
            return True  # its queue is full
        except OSError:
            return False
    return True


def _inode(path: str) -> int:
    """0 when there is nothing."""
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - asked for each live attempt every two seconds
    except OSError:
        return 0


def _attempt_folders(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in folder.iterdir() if _ATTEMPT_ID.fullmatch(entry.name)}
    except FileNotFoundError:
        return set()
