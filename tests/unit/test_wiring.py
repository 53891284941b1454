"""Settings become the right parts."""

from __future__ import annotations

from pydantic import SecretStr

from gpurun.adapters.local import LocalForge
from gpurun.adapters.store import SqliteStore
from gpurun.settings import Settings
from gpurun.wiring import open_local


async def test_a_local_run_never_touches_the_servers_database(tmp_path):
    settings = Settings(state_dir=tmp_path, database_url=SecretStr("postgresql://nobody@127.0.0.1:1/none"))
    async with open_local(settings, LocalForge(tmp_path)) as house:
        assert isinstance(house.store, SqliteStore)
        (database,) = tmp_path.glob("runs/*/gpurun.db")
    assert database.is_file()
