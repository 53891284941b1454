"""Runs that end hard, and the next one: what is in the cache is whole, and what was there is not fetched again."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import anyio
import pytest

from tests.fakes.hub import FakeHub
from tests.world import open_world
from tests.world.rows import let_leases_pass

pytestmark = [pytest.mark.docker, pytest.mark.timeout(200)]

ID = "acme/large"
LARGE = random.Random(3).randbytes(20_000_000)
LARGE_FILE = "large.safetensors"
FILES = {"config.json": b"{}", LARGE_FILE: LARGE, "other.safetensors": LARGE[::-1]}
SUM = hashlib.sha256(LARGE).hexdigest()
RUN = f"""\
cd /gpurun/hub/hub/models--acme--large/snapshots/* && echo "{SUM}  large.safetensors" | sha256sum -c && \
mkdir -p $OLDPWD/out && cp config.json $OLDPWD/out/"""


@pytest.fixture
def hub():
    hub = FakeHub()
    with hub.serving():
        yield hub


def job(revision: str) -> dict[str, object]:
    return {"run": RUN, "models": [{"id": ID, "revision": revision}], "artifacts": ["out/*"]}


def whole(folder: Path) -> dict[str, bool]:
    """Files of weights by name, and whether they have the bytes that the name says."""
    found = [path for path in folder.rglob("acme--large/*") if len(path.name) == 64]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() == path.name for path in found}


async def test_a_bot_that_is_killed_while_weights_come_leaves_a_whole_cache(tmp_path, base_images, hub):
    """Twice in the middle of one large file; the other one is there before, and is not fetched again."""
    revision = hub.add_model(ID, FILES)
    async with open_world(tmp_path, image=base_images.python, hub_url=hub.url) as world:
        world.jobs(smoke=job(revision))
        hub.stall(ID, LARGE_FILE, after=5_000_000)
        world.comment("/gpurun smoke")
        for at, stalled_next in ((4_000_000, 12_000_000), (11_000_000, None)):
            await coming(tmp_path, at)
            world.bot.kill()
            assert all(whole(tmp_path).values())
            hub.models[ID].stalled_at.clear()
            if stalled_next:
                hub.stall(ID, LARGE_FILE, after=stalled_next)
            let_leases_pass(world.database)
            await world.bot.start()
        await world.expect_check("gpurun / smoke", "success")
        await world.expect_comment("✅ passed")
        assert sorted(whole(tmp_path).values()) == [True] * 3

        before = len(hub.seen("/repos/"))
        world.jobs({"new.txt": "another commit"}, smoke=job(revision))
        world.comment("/gpurun smoke")
        await world.until(
            lambda: True if [one.conclusion for one in world.github.checks(world.repo)] == ["success"] * 2 else None,
            "a second green check",
        )
        assert len(hub.seen("/repos/")) == before
        assert sorted(whole(tmp_path).values()) == [True] * 3
        await world.expect_no_container()


async def coming(tmp_path: Path, at_least: int) -> None:
    """Until so much of a file is on the disk, as a part."""
    with anyio.fail_after(60):
        while not any(path.stat().st_blocks * 512 >= at_least for path in tmp_path.rglob("acme--large/*.part")):
            await anyio.sleep(0.02)
