"""One SQLite file serves one process; a copy of a database touches nothing until somebody says that it may."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

from tests.world import BotProcess, World, open_world
from tests.world.deaths import Deaths
from tests.world.laws import assert_laws
from tests.world.nursery import Nursery
from tests.world.rows import select
from tests.world.shifted import ShiftedClock, shift_postgres

pytestmark = [pytest.mark.docker, pytest.mark.timeout(240)]

HOLD = "while [ ! -e go ]; do sleep 0.05; done; echo went"


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def clock(tmp_path):
    return ShiftedClock(tmp_path / "shift")


def opened(folder, image, nursery, clock, url=""):
    """A world whose clock can be shifted."""
    return open_world(
        folder,
        image=image,
        database_url=url,
        clock=clock,
        nursery=nursery,
        environment={"SHIFTED_CLOCK": str(folder / "shift")},
    )


async def refusal(bot: BotProcess) -> str:
    """It does not start, and this is what it says."""
    before = len(bot.output())
    bot.spawn()
    assert await bot.ended() == 2, bot.output()
    return bot.output()[before:]


async def gpurun(nursery: Nursery, words: list[str], bot: BotProcess, folder: Path) -> tuple[int, str]:
    """Exit code and output of another command with the settings of `bot`, in `folder`."""
    log = folder / "command.log"
    log.write_bytes(b"")
    child = nursery.spawn(words, {"PATH": os.getenv("PATH", ""), **bot.environment}, log, cwd=folder)
    with anyio.fail_after(60):
        while (code := child.poll()) is None:
            await anyio.sleep(0.02)
    return code, log.read_text()


async def holding(world: World) -> str:
    """The container of a job that waits for `go`."""
    world.jobs(smoke={"run": HOLD})
    world.comment("/gpurun smoke")
    container = await world.expect_container()
    await world.expect_running()
    unsent = "SELECT 1 FROM publication WHERE sent_at IS NULL OR state IN ('sending', 'reconciling')"
    await world.until(lambda: not select(world.database, unsent) or None, "no write under way")
    return container


async def test_a_second_process_on_one_file_is_refused_and_the_first_one_does_not_notice(
    tmp_path, base_images, nursery, clock
):
    async with opened(tmp_path, base_images.python, nursery, clock) as world:
        container = await holding(world)
        for _ in range(2):
            said = await refusal(world.bot.twin())
            assert "Another gpurun process uses" in said
            assert "GPURUN_DATABASE_URL=postgresql://" in said
        for command in ("adopt", "upgrade"):
            code, said = await gpurun(nursery, ["db", command], world.bot, tmp_path)
            assert code == 2
            assert "Another gpurun process uses" in said
        assert [one["Id"] for one in world.containers()] == [container]
        world.in_container(container, "touch", "/gpurun/work/go")
        await world.expect_check("gpurun / smoke", "success")
        await world.expect_comment("✅ passed")
        await assert_laws(world)


async def test_a_run_at_a_terminal_beside_a_server_is_a_matter_of_its_own(tmp_path, base_images, nursery, clock):
    """In the same state folder: it has its own database, and neither carries out the other's work."""
    async with opened(tmp_path, base_images.python, nursery, clock) as world:
        container = await holding(world)
        code, said = await gpurun(nursery, ["run", "here"], world.bot, checkout(tmp_path, base_images.python))
        assert code == 0, said
        assert "at a terminal" in said
        assert [one["Id"] for one in world.containers()] == [container]
        world.in_container(container, "touch", "/gpurun/work/go")
        await world.expect_check("gpurun / smoke", "success")
        await world.expect_comment("✅ passed")
        record = await assert_laws(world)
        assert [run["job"] for run in record.runs] == ["smoke"]


def checkout(folder: Path, image: str) -> Path:
    """With one job."""
    made = folder / "checkout"
    made.mkdir()
    jobs = {"here": {"image": image, "run": "echo at a terminal"}}
    (made / ".gpurun.yml").write_text(json.dumps({"version": 1, "jobs": jobs}))
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "jobs"]):
        subprocess.run(["git", *who, *words], cwd=made, check=True)
    return made


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def server(request):
    """What copies a database, and the address of the original; both empty for SQLite."""
    if request.param == "sqlite":
        yield None, ""
        return
    url = request.getfixturevalue("postgres_url")
    cluster = request.getfixturevalue("postgres_cluster")
    shift_postgres(url)
    yield cluster, url
    cluster.sql(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]}_copy WITH (FORCE)")


def copied(world: World, folder: Path, cluster) -> BotProcess:
    """A bot, not started, elsewhere and on a copy."""
    bot = world.bot.twin()
    state = folder / "elsewhere"
    state.mkdir()
    bot.environment = {**bot.environment, "GPURUN_STATE_DIR": str(state)}
    if cluster is None:
        for end in ("", "-wal"):
            shutil.copy(f"{world.database}{end}", state / f"gpurun.db{end}")
        return bot
    name = world.database.rpartition("/")[2]
    cluster.sql(f"CREATE DATABASE {name}_copy TEMPLATE {name}")
    cluster.sql(f"ALTER DATABASE {name}_copy SET search_path = public, shifted, pg_catalog")
    bot.environment = {**bot.environment, "GPURUN_DATABASE_URL": f"{world.database}_copy"}
    return bot


def touched(world: World) -> list[str]:
    """Writes to GitHub, and the question with which a server starts; a read of the killed one may come late."""
    return [one.path for one in world.github.requests if one.method != "GET" or one.path == "/app"]


async def test_a_copy_touches_nothing_until_it_is_adopted(tmp_path, base_images, nursery, clock, server):
    """Copied in the middle of a run, from a file that is written to; the original dies; then the copy is adopted."""
    cluster, url = server
    async with opened(tmp_path, base_images.python, nursery, clock, url) as world:
        container = await holding(world)
        if cluster is not None:
            world.bot.kill()  # PostgreSQL copies no database that is in use
        bot = copied(world, tmp_path, cluster)
        if cluster is None:
            assert "gpurun db adopt" in await refusal(bot)
            assert world.bot.alive
            world.bot.kill()
        asked = touched(world)
        for _ in range(2):
            said = await refusal(bot)
            assert "may be a copy" in said
            assert "gpurun db adopt" in said
        assert touched(world) == asked
        assert [one["Id"] for one in world.containers()] == [container]

        code, said = await gpurun(nursery, ["db", "adopt"], bot, tmp_path)
        assert code == 0, said
        assert "belongs to this host now" in said
        world.database = bot.environment["GPURUN_DATABASE_URL"] or str(tmp_path / "elsewhere" / "gpurun.db")
        world.bot = bot
        world.github.hook_url = f"{bot.url}/github"
        await bot.start()
        try:
            world.comment("/gpurun cancel smoke")  # the agent does not hear of it: the socket is where the original was
            async with Deaths(world, clock, "", "").hurried(2):
                await world.expect_check("gpurun / smoke", "cancelled")
            await world.expect_comment("cancelled")
            await world.expect_no_container()
            world.jobs(smoke={"run": "echo went"})
            world.comment("/gpurun smoke")
            await world.expect_check("gpurun / smoke", "success")
            await world.expect_comment("✅ passed")
            await assert_laws(world)
            await world.finish()
        finally:
            await bot.stop()
