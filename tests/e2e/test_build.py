"""`build`: from a comment, or a terminal, to a job that runs in an image that the bot built."""

from __future__ import annotations

import json
import re
import secrets

import httpx
import pytest

from tests.docker.built import inputs_of_builds, remove_built
from tests.e2e.test_cli import Desk
from tests.services.engine import BaseImages
from tests.world import World, open_world
from tests.world.laws import assert_laws
from tests.world.rows import select

pytestmark = [pytest.mark.docker, pytest.mark.timeout(180)]

TOKEN = "ghp_" + "a1B2" * 9


@pytest.fixture
def built(engine):
    """Images that the test has built are removed again."""
    before = inputs_of_builds(engine)
    yield
    remove_built(engine, inputs_of_builds(engine) - before)


@pytest.fixture
async def world(tmp_path, base_images, built):
    async with open_world(tmp_path, image=base_images.python) as world:
        yield world


@pytest.fixture
def desk(tmp_path, engine, base_images: BaseImages, built):
    return Desk(tmp_path, engine, base_images.python)


def dockerfile(image: str, *steps: str) -> str:
    """Of which the engine has no layer yet."""
    return "\n".join([f"FROM {image}", f"LABEL one-of-a-kind={secrets.token_hex(8)}", *steps, ""])


async def test_a_comment_builds_the_dockerfile_of_the_commit_and_runs_in_it(world: World):
    job = {"build": {"dockerfile": "docker/Dockerfile", "args": {"WORD": "hello"}}, "run": "cat /word; echo ran"}
    text = dockerfile(world.image, "ARG WORD", f"RUN echo {TOKEN}; echo $WORD > /word", "COPY . /ctx")
    config = json.dumps({"version": 1, "jobs": {"smoke": job}})
    world.files({".gpurun.yml": config, "docker/Dockerfile": text})
    world.comment("/gpurun smoke")
    await world.expect_check("gpurun / smoke", "success")
    body = await world.expect_comment("✅ passed")
    assert "| built of | `docker/Dockerfile` |" in body
    assert re.search(r"`gpurun-build:[0-9a-f]{64}`", body)
    assert world.image.split("@")[1] in body
    assert "| pull | build | boot |" in body
    (log,) = await page_logs(world, body)
    assert "Step 1/6 : FROM" in log
    assert "Successfully built" in log
    assert log.endswith("::gpurun:: run\nhello\nran\n")
    assert TOKEN not in log
    world.comment("/gpurun smoke")
    ended = "SELECT 1 FROM run WHERE verdict = 'passed'"
    await world.until(lambda: True if len(select(world.database, ended)) == 2 else None, "the second run")
    _, again = await page_logs(world, body)
    assert again.startswith("::gpurun:: build cached: docker/Dockerfile with these inputs is gpurun-build:")
    assert again.endswith("::gpurun:: run\nhello\nran\n")
    await assert_laws(world)


async def test_a_build_that_fails_is_the_jobs_failure_with_its_line_and_no_machine(world: World):
    text = dockerfile(world.image, "RUN echo doing && \\\n  exit 3")
    config = json.dumps({"version": 1, "jobs": {"smoke": {"build": ".", "run": "true"}}})
    world.files({".gpurun.yml": config, "Dockerfile": text})
    world.comment("/gpurun smoke")
    await world.expect_check("gpurun / smoke", "failure")
    body = await world.expect_comment("❌ failed")
    assert "The build failed at step 3, line 3 of Dockerfile" in body.replace("`", "")
    assert "doing" in body
    assert "returned a non-zero code: 3" in body
    (attempt,) = select(world.database, "SELECT create_sent_at, result FROM attempt")
    assert attempt["create_sent_at"] is None
    assert json.loads(attempt["result"])["reason"] == "build"


async def test_a_dockerfile_that_cannot_be_pinned_is_refused_with_its_line(world: World):
    config = json.dumps({"version": 1, "jobs": {"smoke": {"build": ".", "run": "true"}}})
    world.files({"sub/.gpurun.yml": config, "sub/Dockerfile": f"FROM {world.image}\nADD https://e.org/x /\n"})
    world.comment("/gpurun smoke")
    await world.expect_check("gpurun / smoke (sub)", "failure")
    body = await world.expect_comment("⛔ refused")
    assert "sub/Dockerfile`, line 2" in body
    world.files({"sub/Dockerfile": "FROM python:3.12\n"})
    world.comment("/gpurun smoke")
    body = await world.expect_comment("The image python:3.12 is not pinned")
    assert "gpurun lock sub/.gpurun.yml" in body


def test_a_terminal_sees_the_build_and_the_plan_that_was_shown(desk: Desk):
    desk.checkout.joinpath("Dockerfile").write_text(dockerfile(desk.image, "COPY word /word"))
    desk.checkout.joinpath("word").write_text("of the commit\n")
    config = {"version": 1, "jobs": {"smoke": {"build": ".", "run": "cat /word"}}}
    desk.checkout.joinpath(".gpurun.yml").write_text(json.dumps(config))
    desk.git("add", "-A")
    desk.git("commit", "-q", "-m", "jobs")
    desk.checkout.joinpath("word").write_text("not committed\n")
    planned = desk.plan("smoke")
    code, out, err = desk.run("smoke")
    assert (code, err) == (0, "")
    assert "· preparing" in out
    assert "Step 3/4 : COPY word /word\n" in out
    assert "\nnot committed\n" in out
    assert f"  plan       {planned['digest']}\n" in out
    assert planned["plan"]["build"]["inputs_sha256"] in out
    assert re.search(r"\n  time       plan and queue .* · build .* · boot ", out)


async def page_logs(world: World, body: str) -> list[str]:
    """What the pages of all runs have of their logs, oldest first. `body`: a comment with the address of one."""
    page = httpx.URL(re.search(r"http://[^\s)]+/runs/[^\s)]+", body)[0])  # type: ignore[index]
    runs = select(world.database, "SELECT id, read_key FROM run ORDER BY created_at, id")
    async with httpx.AsyncClient(timeout=10) as client:
        urls = (page.copy_with(path=f"/runs/{run['id']}/log", params={"key": run["read_key"]}) for run in runs)
        return [(await client.get(url)).text for url in urls]
