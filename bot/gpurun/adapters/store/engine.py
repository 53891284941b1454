"""The two stores: open and close, write, read, accept, committed."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeVar

from gpurun.adapters.store import database as databases
from gpurun.adapters.store.database import Database
from gpurun.adapters.store.filelock import FileLock
from gpurun.adapters.store.identity import Identity, host_of_file, host_of_server, identify
from gpurun.adapters.store.news import News
from gpurun.adapters.store.schema import bring_up
from gpurun.adapters.store.transaction import Transaction
from gpurun.adapters.store.writer import Writer
from gpurun.domain.delivery import Delivery
from gpurun.domain.errors import Bug
from gpurun.domain.stream import Piece, Taken
from gpurun.ports.clock import Chance, Clock
from gpurun.ports.store import ChainReport, Tx

T = TypeVar("T")

DATABASE_CLOCK: Final = "database"
"""Rows get the time of the PostgreSQL server, so that workers with wrong clocks agree."""


class _Store(ABC):
    """`ports.store.Store`, but for who runs a write.

    A function given to `write` must only use its transaction: PostgreSQL may make us run it again. A caller that is
    cancelled while it waits does not know whether its function was committed.
    """

    def __init__(self, chance: Chance, *, threads: int) -> None:
        self._chance = chance
        self._threads = threads
        self._news = News()
        self._open: _Open | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        database, identity = await asyncio.to_thread(self._open_database)
        self._open = _Open(
            database=database,
            identity=identity,
            loop=loop,
            writer=Writer(database, loop, self._news.ring),
            pool=ThreadPoolExecutor(self._threads, thread_name_prefix="gpurun-store"),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._open = self._here, None
        await asyncio.to_thread(opened.close)
        self._news.ring()
        await asyncio.to_thread(self._release)

    @property
    def install_id(self) -> str:
        """8 lower-case letters and digits that name this installation."""
        return self._here.identity.install_id

    @property
    def install_secret(self) -> bytes:
        """32 bytes."""
        return self._here.identity.install_secret

    async def write(self, fn: Callable[[Tx], T], *, durable: bool = True) -> T:
        self._news.look()
        return await self._submit(fn, durable=durable)

    async def read(self, fn: Callable[[Tx], T]) -> T:
        self._news.look()
        opened = self._here
        return await opened.loop.run_in_executor(opened.pool, opened.database.view, fn)

    async def accept(self, delivery: Delivery) -> bool:
        return await self._here.writer.accept(delivery)

    def append(self, piece: Piece) -> asyncio.Future[Taken]:
        return self._here.writer.append(piece)

    async def committed(self, *, timeout_s: float) -> bool:
        """True at once when something was committed since this task's last read, write or wait.

        A transaction that changed nothing, or only took and renewed leases, gave a row back until later, noted a
        contact or appended to a stream, is not told: loops that claim would wake themselves.
        """
        return await self._news.wait(timeout_s)

    async def verify_audit(self) -> ChainReport:
        opened = self._here
        return await opened.loop.run_in_executor(opened.pool, opened.database.view, Transaction.verify_audit)

    @property
    def _here(self) -> _Open:
        if self._open is None:
            raise Bug("The store is not open.")
        return self._open

    @abstractmethod
    def _open_database(self) -> tuple[Database, Identity]:
        """Blocks."""

    @abstractmethod
    def _submit(self, fn: Callable[[Transaction], T], *, durable: bool) -> asyncio.Future[T]:
        """Runs `fn` in a transaction on some thread; rings after the commit."""

    @abstractmethod
    def _release(self) -> None:
        """After everything is closed."""


class _Open:
    """What there is only between open and close."""

    def __init__(
        self,
        *,
        database: Database,
        identity: Identity,
        loop: asyncio.AbstractEventLoop,
        writer: Writer,
        pool: ThreadPoolExecutor,
    ) -> None:
        self.database = database
        self.identity = identity
        self.loop = loop
        self.writer = writer
        self.pool = pool

    def close(self) -> None:
        """Blocks until all work is done."""
        self.writer.close()
        self.pool.shutdown(wait=True)
        self.database.close()


class SqliteStore(_Store):
    """One file, one process, one writing thread. The folder must exist."""

    def __init__(self, path: Path | str, *, clock: Clock, chance: Chance) -> None:
        super().__init__(chance, threads=databases.READERS)
        self._path = Path(path)
        self._clock = clock
        self._lock: FileLock | None = None

    def _open_database(self) -> tuple[Database, Identity]:
        self._lock = FileLock(self._path)
        _keep_private(self._path)
        database = databases.open_sqlite(self._path, self._clock)
        try:
            with database.connection() as connection:
                bring_up(connection)
                identity = identify(connection, self._chance, host_of_file(self._path))
            # The lock says that whoever held a lease is dead.
            database.transact(Transaction.void_leases)
        except BaseException:
            database.close()
            self._release()
            raise
        return database, identity

    def _submit(self, fn: Callable[[Transaction], T], *, durable: bool) -> asyncio.Future[T]:
        return self._here.writer.submit(fn, durable=durable)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _keep_private(path: Path) -> None:
    """The file holds read keys, and the secret that tokens are derived from. SQLite gives its other files this mode."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(file).st_mode & 0o077:
            os.fchmod(file, 0o600)
    finally:
        os.close(file)


class PostgresStore(_Store):
    """Any number of processes on one database."""

    def __init__(self, url: str, *, chance: Chance, clock: Clock | Literal["database"] = DATABASE_CLOCK) -> None:
        super().__init__(chance, threads=databases.CONNECTIONS)
        self._url = url
        self._clock = None if isinstance(clock, str) else clock

    def _open_database(self) -> tuple[Database, Identity]:
        database = databases.open_postgres(self._url, self._clock)
        try:
            with database.connection() as connection:
                bring_up(connection)
                identity = identify(connection, self._chance, host_of_server(connection))
        except BaseException:
            database.close()
            raise
        return database, identity

    def _submit(self, fn: Callable[[Transaction], T], *, durable: bool) -> asyncio.Future[T]:
        # always durable: this process may live on when the server dies, and would believe in leases that are lost
        opened = self._here
        return opened.loop.run_in_executor(opened.pool, self._transact, opened, fn)

    def _transact(self, opened: _Open, fn: Callable[[Transaction], T]) -> T:
        done = opened.database.transact(fn)
        if done.news:
            opened.loop.call_soon_threadsafe(self._news.ring)
        return done.value

    def _release(self) -> None:
        """The server knows no lock of ours."""
