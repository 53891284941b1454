"""A PostgreSQL cluster of the tests' own, and the store on both databases."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ops.local_services import free_port
from tests.fakes.clock import FakeChance, FakeClock

if TYPE_CHECKING:  # this file is a plugin of every test run; most of them need no database
    from gpurun.adapters.store import PostgresStore, SqliteStore

TEMPLATE = "gpurun_template"
_START_TIMEOUT_S = 60
_numbers = count(1)


class Cluster:
    """A running server on a loopback port, with a migrated template database."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self._data = folder / "data"
        self._user = "postgres" if os.geteuid() == 0 else None
        self.port = free_port()

    def start(self) -> None:
        if self._user:
            account = pwd.getpwnam(self._user)
            os.chown(self._folder, account.pw_uid, account.pw_gid)
        self._run("initdb", "-D", self._data, "-U", "gpurun", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        # Nothing here outlives the tests, so nothing has to reach the disk.
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
            " -c synchronous_commit=off -c full_page_writes=off -c max_connections=200 -c shared_buffers=32MB"
        )
        log = self._folder / "log"
        self._run("pg_ctl", "-D", self._data, "-l", log, "-w", "-t", _START_TIMEOUT_S, "-o", options, "start")
        from gpurun.adapters.store import upgrade

        self.sql(f"CREATE DATABASE {TEMPLATE}")
        upgrade(self.url(TEMPLATE))

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def url(self, database: str) -> str:
        return f"postgresql://gpurun@127.0.0.1:{self.port}/{database}"

    def sql(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)

    def _run(self, program: str, *arguments: object) -> None:
        subprocess.run(
            [self._programs / program, *map(str, arguments)],
            user=self._user,
            group=self._user,
            extra_groups=[] if self._user else None,
            cwd=self._folder,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=_START_TIMEOUT_S + 10,
        )


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[Cluster]:
    programs = _server_programs()
    if programs is None:
        why = "PostgreSQL's server programs are missing; get them with `make setup` or `apt-get install postgresql`."
        if os.getenv("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="gpurun-postgres-"))
    cluster = Cluster(programs, folder)
    try:
        cluster.start()
        yield cluster
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_cluster: Cluster) -> Iterator[str]:
    """A migrated database of this test's own."""
    name = f"gpurun_{next(_numbers)}"
    postgres_cluster.sql(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
    yield postgres_cluster.url(name)
    postgres_cluster.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the store of this test lives: a path, or an address."""
    if request.param == "sqlite":
        return str(tmp_path / "gpurun.sqlite")
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
async def store(store_url: str, clock: FakeClock, chance: FakeChance) -> AsyncIterator[SqliteStore | PostgresStore]:
    """An open store, once per database; rows get the time of `clock`."""
    async with make_store(store_url, clock, chance) as opened:
        yield opened


def make_store(url: str, clock: FakeClock, chance: FakeChance) -> SqliteStore | PostgresStore:
    """Not open yet."""
    from gpurun.adapters.store import PostgresStore, SqliteStore

    if "://" in url:
        return PostgresStore(url, clock=clock, chance=chance)
    return SqliteStore(url, clock=clock, chance=chance)


def _server_programs() -> Path | None:
    """The newest ones."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None
