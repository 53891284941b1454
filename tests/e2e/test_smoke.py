"""The main job, from a comment to a verdict: the bot is a process, containers, git, hub and registry are real."""

from __future__ import annotations

import re
import time

import anyio
import httpx
import pytest

from ops.demo_model import smoke_repository
from ops.local_services import CACHE
from tests.world import World, open_world

pytestmark = pytest.mark.docker

WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.05; done"


@pytest.fixture
async def world(tmp_path, base_images):
    async with open_world(tmp_path, image=base_images.python) as world:
        yield world


async def test_a_job_that_passes(world: World):
    world.jobs({"hello.py": "print('hello from', __file__)\n"}, smoke={"run": "python3 hello.py"})
    comment = world.comment("/gpurun smoke")
    check = await world.expect_check("gpurun / smoke", "success")
    body = await world.expect_comment("✅ passed")
    assert "hello from /gpurun/work/hello.py" in body
    assert world.image.split("@")[1] in body
    assert world.pull.head_sha in body
    assert "$0.00 (declared)" in body
    assert check.head_sha == world.pull.head_sha
    assert len(world.bot_comments()) == 1
    await world.expect_reaction(comment)


async def test_exit_code_3_fails(world: World):
    world.jobs(smoke={"run": "echo about to fail; exit 3"})
    world.comment("/gpurun smoke")
    check = await world.expect_check("gpurun / smoke", "failure")
    body = await world.expect_comment("❌ failed")
    assert "about to fail" in body
    assert "3" in check.title
    assert len(world.bot_comments()) == 1


async def test_a_second_comment_joins_the_live_run(world: World):
    world.jobs(smoke={"run": WAIT_FOR_GO})
    world.comment("/gpurun smoke")
    container = await world.expect_container()
    second = world.comment("/gpurun smoke", by="erin")
    await world.expect_reaction(second)
    await world.expect_comment("smoke already runs like this for this commit")
    assert await world.expect_container() == container
    await let_go(world, container)
    await world.expect_check("gpurun / smoke", "success")
    body = await world.expect_comment("✅ passed")
    assert "also asked by `erin`" in body
    assert len(world.github.checks(world.repo)) == 1
    assert len(world.bot_comments()) == 2


async def test_cancel_ends_the_container(world: World):
    world.jobs(smoke={"run": "echo started; sleep 600"})
    world.comment("/gpurun smoke")
    await world.expect_container()
    world.comment("/gpurun cancel", by="erin")
    await world.expect_check("gpurun / smoke", "cancelled")
    body = await world.expect_comment("cancelled")
    assert "erin" in body
    await world.expect_no_container()
    assert len(world.bot_comments()) == 1


async def test_words_that_start_nothing(world: World):
    """Unknown job, help, nothing to cancel, a reader, an issue-like chat: one answer each, no check, no container."""
    world.jobs(smoke={"run": "echo hi"})
    world.comment("/gpurun smoek")
    assert "`smoke`" in await world.expect_comment("There is no job `smoek`")
    world.comment("/gpurun help")
    assert "/gpurun cancel" in await world.expect_comment("| comment |")
    world.comment("/gpurun cancel")
    await world.expect_comment("nothing to cancel")
    world.comment("/gpurun smoke", by="bob")
    await world.expect_comment("`/gpurun smoke` is for people with write access")
    world.comment("> /gpurun smoke\n\nwhat does this do?")
    world.comment("/gpurun retry all")
    await world.expect_comment("there is nothing to run again")
    world.comment("/gpurun estimate smoke")
    await world.expect_comment("`/gpurun estimate` is not in this version")
    assert len(world.bot_comments()) == 6
    assert world.github.checks(world.repo) == []
    assert world.containers() == []


async def test_a_broken_file_is_refused_with_its_line(world: World):
    world.files({".gpurun.yml": "version: 1\njobs:\n  smoke:\n    imag: x\n    run: echo hi\n"})
    world.comment("/gpurun smoke")
    check = await world.expect_check("gpurun / smoke", "failure")
    body = await world.expect_comment("refused")
    assert "imag" in body
    assert "line 4" in check.title
    assert [(a["path"], a["start_line"]) for a in annotations(check)] == [(".gpurun.yml", 4)]
    assert len(world.bot_comments()) == 1
    assert world.containers() == []


async def test_no_file_is_another_refusal(world: World):
    world.files({"train.py": "pass\n"})
    world.comment("/gpurun smoke")
    await world.expect_check("gpurun / smoke", "failure")
    assert "no file `.gpurun.yml`" in await world.expect_comment("refused")


async def test_a_file_that_is_no_text_is_refused(world: World):
    world.files({".gpurun.yml": b"version: 1\n\x00\xff\xfe jobs: caf\xe9\n"})
    world.comment("/gpurun smoke")
    await world.expect_check("gpurun / smoke", "failure")
    await world.expect_comment("refused")


async def test_b102_an_image_that_is_not_there_is_refused(world: World):
    name = world.image.split("@")[0]
    world.jobs(smoke={"run": "echo hi", "image": f"{name}@sha256:{'0' * 64}"})
    world.comment("/gpurun smoke")
    await world.expect_check("gpurun / smoke", "failure")
    assert "sha256:000" in await world.expect_comment("refused")


async def test_the_bot_is_killed_while_the_job_runs(world: World):
    world.jobs(smoke={"run": f"echo before; {WAIT_FOR_GO}; for i in $(seq 500); do echo line $i; done"})
    world.comment("/gpurun smoke")
    container = await world.expect_container()
    body = await world.expect_comment("Run page")
    await line_on_page(world, body, "before")
    world.bot.kill()
    await let_go(world, container)
    await world.bot.start()
    await world.expect_check("gpurun / smoke", "success")
    body = await world.expect_comment("✅ passed")
    log = (await world.page(body, "log.raw")).content.decode()
    lines = [line for line in log.splitlines() if not line.startswith("::gpurun::")]
    assert lines == ["before", *(f"line {i}" for i in range(1, 501))]
    assert len(world.bot_comments()) == 1


async def test_sigterm_leaves_the_job_running(world: World):
    world.jobs(smoke={"run": f"echo before; {WAIT_FOR_GO}; echo after"})
    world.comment("/gpurun smoke")
    container = await world.expect_container()
    body = await world.expect_comment("Run page")
    await line_on_page(world, body, "before")
    began = time.monotonic()
    assert await world.bot.stop() == 0
    assert time.monotonic() - began < 10
    assert [one["Id"] for one in world.containers() if one["State"] == "running"] == [container]
    await world.bot.start()
    await let_go(world, container)
    await world.expect_check("gpurun / smoke", "success")
    await world.expect_comment("✅ passed")


async def test_a_line_can_be_read_while_the_container_runs(world: World):
    world.jobs(smoke={"run": f"{WAIT_FOR_GO}; date +%s.%N; while [ ! -e stop ]; do sleep 0.05; done"})
    world.comment("/gpurun smoke")
    container = await world.expect_container()
    body = await world.expect_comment("Run page")
    await let_go(world, container)
    printed = float(await line_on_page(world, body, r"^\d+\.\d+$"))
    assert time.time() - printed < 1.0
    assert world.containers()[0]["State"] == "running"
    page = await world.page(body)
    assert page.headers["x-robots-tag"] == "noindex"
    assert (await httpx_get(page.url.copy_remove_param("key"))).status_code == 404
    world.in_container(container, "touch", "stop")
    await world.expect_check("gpurun / smoke", "success")
    await world.expect_comment("✅ passed")


async def test_weights_are_verified(world: World, demo_files):
    model, revision = demo_files(world)
    world.files(smoke_repository(image=world.image, revision=revision, checksum=model.expected_checksum))
    world.comment("/gpurun smoke")
    await world.expect_check("gpurun / smoke", "success")
    body = await world.expect_comment("✅ passed")
    assert f"checksum  {model.expected_checksum}" in body
    assert revision in body


async def test_one_flipped_byte_in_the_weights_fails_the_run(world: World, demo_files):
    model, revision = demo_files(world)
    world.hub.corrupt(model.id, "model.safetensors")
    world.files(smoke_repository(image=world.image, revision=revision, checksum=model.expected_checksum))
    world.comment("/gpurun smoke")
    check = await world.expect_check("gpurun / smoke", "failure")
    body = await world.expect_comment("❌ failed")
    assert "model.safetensors" in body
    assert "model.safetensors" in check.title
    assert "checksum  " not in body


async def test_the_same_delivery_twice_is_one_run(world: World):
    world.jobs(smoke={"run": "echo hi"})
    world.comment("/gpurun smoke")
    await world.expect_check("gpurun / smoke", "success")
    await world.expect_comment("✅ passed")
    for hook in [hook for hook in world.github.sent if hook.event == "issue_comment"]:
        assert await world.github.redeliver(hook) == 202
    world.comment("/gpurun help")
    await world.expect_comment("| comment |")
    assert len(world.github.checks(world.repo)) == 1


@pytest.mark.parametrize("kind", ["entrypoint", "user_1000", "busybox_shell"])
async def test_b103_images_of_other_shapes(tmp_path, base_images, kind):
    async with open_world(tmp_path, image=getattr(base_images, kind)) as world:
        world.jobs(smoke={"setup": "echo set up > out.txt", "run": "cat out.txt; id -u", "artifacts": ["*.txt"]})
        world.comment("/gpurun smoke")
        await world.expect_check("gpurun / smoke", "success")
        body = await world.expect_comment("✅ passed")
        assert "set up" in body
        assert "out.txt" in body


async def test_an_image_without_python_says_so(tmp_path, base_images):
    async with open_world(tmp_path, image=base_images.busybox) as world:
        world.jobs(smoke={"run": "echo hi"})
        world.comment("/gpurun smoke")
        await world.expect_check("gpurun / smoke", "failure")
        assert "python3" in (await world.expect_comment("❌ failed")).lower()


@pytest.mark.postgres
async def test_on_postgresql(tmp_path, base_images, postgres_url):
    async with open_world(tmp_path, image=base_images.python, database_url=postgres_url) as world:
        world.jobs(smoke={"run": "echo hi"})
        world.comment("/gpurun smoke")
        await world.expect_check("gpurun / smoke", "success")
        await world.expect_comment("✅ passed")


@pytest.fixture
def demo_files():
    """Puts the demo's model on a world's hub: `(model, revision)`."""
    from ops.demo_model import demo_model

    def add(world: World):
        model = demo_model(CACHE / "demo")
        return model, world.hub.add_model(model.id, model.files)

    return add


async def let_go(world: World, container: str) -> None:
    """Lets a job go on that waits for the file `go`."""
    world.in_container(container, "touch", "/gpurun/work/go")


async def line_on_page(world: World, body: str, pattern: str) -> str:
    """The first line of the log on the run page that matches."""
    with anyio.fail_after(20):
        while True:
            for line in (await world.page(body, "log")).text.splitlines():
                if re.search(pattern, line) and not line.startswith("::gpurun::"):
                    return line
            await anyio.sleep(0.05)


async def httpx_get(url: httpx.URL) -> httpx.Response:
    async with httpx.AsyncClient(timeout=10) as client:
        return await client.get(url)


def annotations(check) -> list[dict]:
    return [a if isinstance(a, dict) else vars(a) for a in check.annotations]
