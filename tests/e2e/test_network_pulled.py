"""The first run fills the caches; then hub, registry and git remote are gone, and the second one is green."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ops.local_services import Registry, free_port
from tests.docker.watchdogs import end_watchdogs
from tests.e2e.test_cli import Desk
from tests.fakes.hub import FakeHub
from tests.world import open_world

pytestmark = [pytest.mark.docker, pytest.mark.timeout(200)]

NOBODY = "http://127.0.0.1:9"
"""The discard port, where nobody listens."""
ID = "acme/tiny"
FILES = {"config.json": b"{}", "model.safetensors": b"w" * 5000}
RUN = """\
cd /gpurun/hub/hub && ls models--acme--tiny/snapshots/* && cat /gpurun/hub/hub/models--acme--tiny/refs/main && \
cat /weights/config.json && test ! -w models--acme--tiny && cd - && cat there.txt
"""


@pytest.fixture
def own_registry(tmp_path):
    registry = Registry(tmp_path / "registry", free_port())
    registry.start()
    yield registry
    registry.stop()


@pytest.fixture
def image(engine, base_images, own_registry):
    """The Python image in a registry of the test's own."""
    name = f"{own_registry.address}/alone/python"
    engine.pull(base_images.python)
    engine.tag(base_images.python, name, "1")
    said = [json.loads(line) for line in engine.push(name, tag="1", auth_config={}).splitlines()]
    (digest,) = [one["aux"]["Digest"] for one in said if "aux" in one]
    yield f"{name}@{digest}"
    engine.remove_image(f"{name}:1")


@pytest.fixture
def hub():
    hub = FakeHub()
    with hub.serving():
        yield hub


def job(hub: FakeHub) -> dict[str, object]:
    revision = hub.add_model(ID, FILES)
    return {"run": RUN, "models": [{"id": ID, "revision": revision, "target": "/weights"}]}


async def test_a_server_runs_a_commit_again(tmp_path, image, hub, own_registry):
    async with open_world(tmp_path, image=image, hub_url=hub.url) as world:
        world.jobs({"there.txt": "from the commit\n"}, smoke=job(hub))
        world.comment("/gpurun smoke")
        await world.expect_check("gpurun / smoke", "success")
        assert "Note:" not in await world.expect_comment("✅ passed")
        await world.expect_no_container()

        await world.bot.stop()
        own_registry.stop()
        gone = {"GPURUN_HUB_URL": NOBODY, "GPURUN_GITHUB_URL": NOBODY}
        world.bot.environment = {**world.bot.environment, **gone}
        seen = len(hub.requests)
        await world.bot.start()
        world.comment("/gpurun smoke")
        await world.until(
            lambda: True if [one.conclusion for one in world.github.checks(world.repo)] == ["success"] * 2 else None,
            "a second green check",
        )
        body = await world.expect_comment("Note: The hub is silent and was not asked for acme/tiny")
        assert "✅ passed" in body
        assert (
            f"The registry of {image.split('@')[0]} is silent and was not asked: it confirmed the image on 20" in body
        )
        assert "from the commit" in body
        assert len(hub.requests) == seen
        await world.expect_no_container()


def test_gpurun_run_runs_a_commit_again(tmp_path, engine, image, hub, own_registry):
    desk = Desk(tmp_path, engine, image)
    (desk.checkout / "there.txt").write_text("from the commit\n")
    desk.jobs(smoke=job(hub))
    try:
        code, out, err = desk.run("smoke", "--json", hub_url=hub.url)
        assert code == 0, err
        first = json.loads(out)
        own_registry.stop()
        code, out, err = desk.run("smoke", "--json", hub_url=NOBODY)
        assert code == 0, err
        second = json.loads(out)
        assert second["plan_digest"] == first["plan_digest"]
        assert "weights mounted (1 MiB)" in err
        assert "from the commit" in err
        shelf = Path(desk.home / "hub/uses")
        assert list(shelf.iterdir()) == []  # nobody uses anything any more
    finally:
        end_watchdogs(desk.home / "watchdog")
