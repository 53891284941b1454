"""A bad line between an agent and the bot: it takes the place of the attempt's socket and cuts what passes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import anyio

CUT_WITHIN = (1, 70_000, 500_000)
"""After so many bytes of a connection, in turn; the bot is in the middle of a request then."""
_PIECE = 64 * 1024


class UplinkProxy:
    """Between agents and a bot's port, where the agent API answers as well."""

    def __init__(self, bot_url: str) -> None:
        self._port = urlsplit(bot_url).port
        self._ends: set[asyncio.StreamWriter] = set()
        self.cuts = 0

    @contextlib.asynccontextmanager
    async def in_place_of(self, socket: Path, short: Path) -> AsyncIterator[None]:
        """`short` is a name for the time until it has its place, of less than 100 letters."""
        server = await asyncio.start_unix_server(self._carry, short)
        short.chmod(0o666)
        short.replace(socket)
        try:
            yield
        finally:
            server.close()
            while self._ends:
                for end in self._ends:
                    end.transport.abort()
                await anyio.sleep(0.01)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = {writer}
        self._ends |= ends
        try:
            with contextlib.suppress(OSError):
                bot_reader, bot_writer = await asyncio.open_connection("127.0.0.1", self._port)
                ends.add(bot_writer)
                self._ends |= ends
                async with anyio.create_task_group() as both:
                    both.start_soon(_copy, bot_reader, writer, None)
                    if await _copy(reader, bot_writer, self._next_cut()):
                        self.cuts += 1
                    both.cancel_scope.cancel()
        finally:
            for end in ends:
                end.transport.abort()
            self._ends -= ends

    def _next_cut(self) -> int | None:
        return CUT_WITHIN[self.cuts] if self.cuts < len(CUT_WITHIN) else None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None) -> bool:
    """True when it was cut."""
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE if left is None else min(left, _PIECE)):
            writer.write(data)
            await writer.drain()
            left = None if left is None else left - len(data)
            if left == 0:
                return True
    return False
