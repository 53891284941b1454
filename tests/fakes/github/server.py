"""The fake GitHub on a loopback port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from tests.fakes.github.fake import FakeGitHub

STOP_WITHIN_S = 5


@asynccontextmanager
async def serving(github: FakeGitHub, *, port: int = 0) -> AsyncIterator[str]:
    """Answers at the yielded URL while the block runs, and sends deliveries by itself once `hook_url` is set."""
    # asyncio turns Nagle's algorithm off only where the protocol is named; with it each answer takes 40 ms
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    before = github.api_url, github.git_url, github.transport
    github.api_url, github.git_url, github.transport = f"{url}/api/v3", url, None
    server = _Server(
        uvicorn.Config(
            github.asgi, lifespan="off", log_level="error", access_log=False, timeout_graceful_shutdown=STOP_WITHIN_S
        )
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            serve = tasks.create_task(server.serve(sockets=[listener]))
            pump = tasks.create_task(_pump(github))
            try:
                while not server.started:
                    await asyncio.sleep(0.005)
                yield url
            finally:
                pump.cancel()
                server.should_exit = True
                await serve
    finally:
        listener.close()
        github.api_url, github.git_url, github.transport = before


async def _pump(github: FakeGitHub) -> None:
    with github.watching() as changed:
        while True:
            changed.clear()
            if github.hook_url:
                await github.deliver()
            await changed.wait()


class _Server(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
