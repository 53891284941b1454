"""Settings become the right parts."""

from __future__ import annotations

import stat

import pytest
from pydantic import SecretStr

from gpurun.adapters.local import LocalForge
from gpurun.adapters.store import SqliteStore
from gpurun.settings import Settings
from gpurun.wiring import Folders, open_local


async def test_a_local_run_never_touches_the_servers_database(tmp_path):
    settings = Settings(state_dir=tmp_path, database_url=SecretStr("postgresql://nobody@127.0.0.1:1/none"))
    async with open_local(settings, LocalForge(tmp_path)) as house:
        assert isinstance(house.store, SqliteStore)
        (database,) = tmp_path.glob("runs/*/gpurun.db")
    assert database.is_file()


@pytest.mark.parametrize("before", [None, 0o755, 0o777])
def test_private_code_weights_and_results_are_for_their_owner_only(tmp_path, before):
    home = tmp_path / "gpurun"
    if before is not None:
        (home / "git").mkdir(parents=True)
        for folder in (home, home / "git"):
            folder.chmod(before)
    Folders(state=home / "runs" / "one", cache=home).made()
    inside = [home / "git", home / "hub", home / "runs/one", home / "runs/one/blobs", home / "runs/one/up"]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in inside} == {0o700}
    assert stat.S_IMODE(home.stat().st_mode) == (before or 0o700)
