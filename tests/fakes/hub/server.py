"""Serves the hub on two loopback ports from a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from tests.fakes.hub.app import create_app
from tests.fakes.hub.hub import FakeHub

START_TIMEOUT_S = 10.0


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.is_up.set()


@contextmanager
def serve(hub: FakeHub, *, host: str, port: int) -> Iterator[tuple[str, str]]:
    """Endpoint and large-file store, another host name and port of the same loopback."""
    sockets = [_listen(host, port), _listen("127.0.0.1", 0)]
    urls = (f"http://{host}:{sockets[0].getsockname()[1]}", f"http://localhost:{sockets[1].getsockname()[1]}")
    config = uvicorn.Config(create_app(hub), lifespan="off", ws="none", log_config=None, access_log=False)
    config.timeout_graceful_shutdown = 1
    server = _Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": sockets}, name="fake-hub", daemon=True)
    thread.start()
    try:
        if not server.is_up.wait(START_TIMEOUT_S):
            raise RuntimeError("the fake hub did not start")
        yield urls
    finally:
        server.should_exit = True
        thread.join(START_TIMEOUT_S)
        for listener in sockets:
            listener.close()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    return listener
