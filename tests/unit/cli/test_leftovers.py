from __future__ import annotations

import os

import pytest

from gpurun.adapters.clock import SystemChance, SystemClock
from gpurun.adapters.store import SqliteStore
from gpurun.cli.leftovers import ENDED, KEPT, NEVER_STARTED_S, clear_leftovers, find_leftovers
from gpurun.domain.run import RunState, Verdict
from gpurun.settings import Settings
from tests.fakes.rows import a_run


@pytest.fixture
def settings(tmp_path):
    return Settings(state_dir=tmp_path)


def folder(tmp_path, number: int, *files: str):
    made = tmp_path / "runs" / f"{number:026d}"
    made.mkdir(parents=True)
    for name in files:
        (made / name).touch()
    return made


def test_the_newest_ended_folders_stay(tmp_path, settings):
    made = [folder(tmp_path, number, "gpurun.db", ENDED) for number in range(KEPT + 3)]
    assert find_leftovers(settings).old == tuple(made[:3])
    assert find_leftovers(settings).unended == ()


def test_no_folder_at_all(settings):
    assert find_leftovers(settings).old == ()


def test_a_folder_that_has_not_ended_is_never_old(tmp_path, settings):
    left = folder(tmp_path, 0, "gpurun.db")
    for number in range(1, KEPT + 2):
        folder(tmp_path, number, "gpurun.db", ENDED)
    assert left not in find_leftovers(settings).old
    assert find_leftovers(settings).unended == (left,)


def test_a_run_that_is_just_starting_is_left_alone(tmp_path, settings):
    young, dead = folder(tmp_path, 1), folder(tmp_path, 2)
    os.utime(dead, (0, young.stat().st_mtime - 2 * NEVER_STARTED_S))
    assert find_leftovers(settings).old == (dead,)
    assert find_leftovers(settings).unended == ()


async def test_a_killed_run_is_cancelled_by_the_engine(tmp_path, settings):
    left = folder(tmp_path, 1)
    async with SqliteStore(left / "gpurun.db", clock=SystemClock(), chance=SystemChance()) as store:
        await store.write(lambda tx: tx.add_run(a_run(created_at=tx.now(), state_since=tx.now(), due_at=tx.now())))
    assert await clear_leftovers(settings, "ada") == 1
    assert (left / ENDED).exists()
    async with SqliteStore(left / "gpurun.db", clock=SystemClock(), chance=SystemChance()) as store:
        run = await store.read(lambda tx: tx.run(a_run().id))
    assert (run.state, run.verdict, run.cancel_by) == (RunState.ENDED, Verdict.CANCELLED, "ada")
    assert await clear_leftovers(settings, "ada") == 0


async def test_a_run_that_is_alive_keeps_everything(tmp_path, settings):
    alive = folder(tmp_path, 1)
    async with SqliteStore(alive / "gpurun.db", clock=SystemClock(), chance=SystemChance()) as store:
        await store.write(lambda tx: tx.add_run(a_run()))
        assert await clear_leftovers(settings, "ada") == 0
        assert (await store.read(lambda tx: tx.run(a_run().id))).cancel_at is None
    assert not (alive / ENDED).exists()


async def test_a_damaged_folder_is_nobodys_trouble(tmp_path, settings):
    damaged, dead = folder(tmp_path, 1, "gpurun.db"), folder(tmp_path, 2)
    (damaged / "gpurun.db").write_text("no database, whatever its name says; long enough to have a header " * 20)
    async with SqliteStore(dead / "gpurun.db", clock=SystemClock(), chance=SystemChance()):
        pass
    assert await clear_leftovers(settings, "ada") == 0
    assert not (damaged / ENDED).exists()
    assert (dead / ENDED).exists()


async def test_old_folders_are_removed(tmp_path, settings):
    oldest = folder(tmp_path, 0, "gpurun.db", ENDED, "artifact")
    kept = [folder(tmp_path, number, "gpurun.db", ENDED) for number in range(1, KEPT + 1)]
    await clear_leftovers(settings, "ada")
    assert not oldest.exists()
    assert all(one.exists() for one in kept)
