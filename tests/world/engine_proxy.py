"""A Docker Engine whose lists an authorisation plugin can forbid: a Unix socket in front of the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

ENGINE = "/var/run/docker.sock"
FORBIDDEN = b'{"message":"authorization denied by plugin"}'


class EngineProxy:
    """`forbids_lists` may be changed at any time."""

    def __init__(self) -> None:
        self.forbids_lists = False
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self, folder: Path) -> AsyncIterator[str]:
        """The address for `GPURUN_DOCKER_HOST`."""
        path = folder / "docker.sock"
        server = await asyncio.start_unix_server(self._connected, str(path))
        try:
            yield f"unix://{path}"
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(asyncio.CancelledError):
                await self._carry(reader, writer)
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_unix_connection(ENGINE)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_pump, there_reader, writer)
                with suppress(ConnectionError):
                    await self._ask(reader, writer, there)
                tasks.cancel_scope.cancel()
        finally:
            there.close()

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            first_line = data.split(b"\r\n", 1)[0]
            if self.forbids_lists and first_line.startswith(b"GET ") and b"/containers/json" in first_line:
                head = b"HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\nconnection: close\r\n"
                writer.write(head + b"content-length: %d\r\n\r\n" % len(FORBIDDEN) + FORBIDDEN)
                await writer.drain()
                return
            there.write(data)
            await there.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
