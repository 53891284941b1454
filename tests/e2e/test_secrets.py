"""A secret on its whole way: set while the server runs, given to the job that names it, and nowhere to be found."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import anyio
import httpx
import pytest

from gpurun.run import tokens
from ops.local_services import engine
from tests.world import World, open_world
from tests.world.rows import leased, select

pytestmark = [pytest.mark.docker, pytest.mark.timeout(200)]

VALUE = 'canary "fish/é&+ key\\7'
FORMS = {
    "plain": VALUE,
    "base64": base64.b64encode(VALUE.encode()).decode().rstrip("="),
    "url": quote(VALUE),
    "form": quote_plus(VALUE),
    "json": json.dumps(VALUE)[1:-1],
    "utf-8 json": json.dumps(VALUE, ensure_ascii=False)[1:-1],
    "hex": VALUE.encode().hex(),
    "repr": repr(VALUE)[1:-1],
}
SAY = """\
import base64, hashlib, json, os, sys, urllib.parse
value = os.environ["APP_KEY"]
print("got", hashlib.sha256(value.encode()).hexdigest())
print("plain", value)
print("base64", base64.b64encode(value.encode()).decode())
print("url", urllib.parse.quote(value), urllib.parse.quote_plus(value))
print("json", json.dumps({"key": value}), json.dumps({"key": value}, ensure_ascii=False))
print("hex", value.encode().hex())
print("repr", repr(value))
os.makedirs("out", exist_ok=True)
open("out/metrics.json", "w").write("{}")
print("error", value, file=sys.stderr)
"""
GOT = f"got {hashlib.sha256(VALUE.encode()).hexdigest()}"
JOB = {
    "setup": "python3 -c 'import os; print(len(os.environ[\"APP_KEY\"]))'",
    "run": "while [ ! -e go ]; do sleep 0.05; done; python3 say.py",
    "secrets": ["APP_KEY"],
    "artifacts": ["out/*"],
}
FOR_OTHERS = {
    "version": 1,
    "policy": {"secrets": {"APP_KEY": {"jobs": ["eval"]}}},
    "jobs": {"eval": {"image": f"example.com/x@sha256:{'0' * 64}", "run": "true"}},
}


def gpurun(world: World, *words: str, value: str = "") -> str:
    """As the operator types it on the server; its output."""
    environment = {"PATH": os.getenv("PATH", ""), **world.bot.environment}
    done = subprocess.run(
        [sys.executable, "-m", "gpurun", *words], env=environment, input=value.encode(), capture_output=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def set_secret(world: World, value: str = VALUE) -> None:
    gpurun(world, "secret", "set", "APP_KEY", "--repo", world.repo.name, value=value)


def leaks(text: str | bytes) -> list[str]:
    """The forms that stand in it."""
    data = text if isinstance(text, bytes) else text.encode()
    return [name for name, form in FORMS.items() if form.encode() in data]


def rows(database: str) -> Iterator[str]:
    """Every row of every table."""
    names = (
        "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'"
        if "://" in database
        else "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    for table in select(database, names):
        for row in select(database, f"SELECT * FROM {table['name']}"):
            for column, value in row.items():
                text = bytes(value).decode("utf-8", "replace") if isinstance(value, bytes | memoryview) else str(value)
                yield f"{table['name']}.{column}: {text}"


def assert_kept(world: World, folder: Path) -> None:
    """Nothing of it stands in a row, a file of the server, its log, a comment or a check."""
    assert [row for row in rows(world.database) if leaks(row)] == []
    files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    assert folder / "secrets.key" in files
    for file in files:
        assert leaks(file.read_bytes()) == [], file
    assert world.bot.output()
    assert leaks(world.bot.output()) == []
    shown = [one.body + "".join(one.history) for one in world.bot_comments()]
    shown += [f"{one.title} {one.summary} {one.text}" for one in world.github.checks(world.repo)]
    assert [text for text in shown if leaks(text)] == []


async def running(world: World) -> str:
    """The container of the job, which waits for its word."""
    container = await world.expect_container()
    await world.until(
        lambda: select(world.database, "SELECT 1 FROM attempt WHERE phase = 'running'") or None, "the job runs"
    )
    return container


async def test_nothing_of_it_appears_anywhere(tmp_path, base_images):
    async with open_world(tmp_path, image=base_images.python) as world:
        set_secret(world)
        world.jobs({"say.py": SAY}, smoke=JOB)
        world.comment("/gpurun smoke")
        container = await running(world)
        inspected = json.dumps(engine().inspect_container(container), ensure_ascii=False)
        assert leaks(inspected) == []
        assert "APP_KEY" not in inspected
        set_secret(world, "another value of it")  # the run keeps what it has
        world.in_container(container, "touch", "/gpurun/work/go")
        await world.expect_check("gpurun / smoke", "success")
        body = await world.expect_comment("✅ passed")
        assert GOT in body
        for suffix in ("", "log", "log.raw"):
            page = await world.page(body, suffix)
            assert page.status_code == 200
            assert leaks(page.content) == []
        log = (await world.page(body, "log.raw")).content
        assert log.startswith(b"::gpurun:: setup\n%d\n" % len(VALUE))
        assert b"plain " + b"*" * len(VALUE.encode()) + b"\n" in log
        assert_kept(world, tmp_path / "state")
        assert "APP_KEY  " in gpurun(world, "secret", "list", "--repo", world.repo.name)


async def test_what_is_not_set_or_not_allowed_is_refused_with_what_to_type(tmp_path, base_images):
    async with open_world(tmp_path, image=base_images.python) as world:
        world.jobs({"say.py": SAY}, smoke=JOB)
        world.comment("/gpurun smoke")
        await world.expect_check("gpurun / smoke", "failure")
        body = await world.expect_comment("refused")
        assert f"gpurun secret set APP_KEY --repo {world.repo.name}" in body
        set_secret(world)
        world.alice.push(world.repo, {".gpurun.yml": json.dumps(FOR_OTHERS)})
        world.comment("/gpurun smoke")
        await world.expect_comment("The job smoke may not use the secret")
        assert world.made_containers() == []


@pytest.mark.postgres
async def test_what_one_process_gave_another_one_masks(tmp_path, base_images, postgres_url):
    """The first answers the claim and dies; the second never saw it, and restarts once more."""
    async with open_world(tmp_path, image=base_images.python, database_url=postgres_url) as world:
        set_secret(world)
        world.jobs({"say.py": SAY}, smoke=JOB)
        world.comment("/gpurun smoke")
        container = await running(world)
        twin = world.bot.twin()
        await twin.start()
        try:
            with anyio.fail_after(20):
                while leased(postgres_url):
                    await anyio.sleep(0.01)
            world.bot.kill()
            world.github.hook_url = f"{twin.url}/github"
            await name_an_artifact(twin.url, postgres_url)
            world.in_container(container, "touch", "/gpurun/work/go")
            await world.expect_check("gpurun / smoke", "success")
            body = await world.expect_comment("✅ passed")
            await world.expect_no_container()
        finally:
            assert await twin.stop() == 0
        assert GOT in body
        assert leaks(twin.output()) == []
        assert_kept(world, tmp_path / "state")
        names = [row["path"] for row in select(postgres_url, "SELECT path FROM artifact")]
        assert any(name.startswith("out/***") for name in names), names


async def name_an_artifact(url: str, database: str) -> None:
    """With the run's own token, as a job could that has found it: no agent masks this."""
    (meta,) = select(database, "SELECT install_secret FROM meta")
    (attempt,) = select(database, "SELECT id, boot_id FROM attempt")
    token = tokens.run_token(bytes(meta["install_secret"]), attempt["id"], attempt["boot_id"])
    path = f"out/{FORMS['hex']}.json"
    query = {"offset": 0, "size": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}
    async with httpx.AsyncClient(timeout=20) as client:
        answer = await client.put(
            f"{url}/agent/v1/artifacts/{path}", params=query, content=b"{}",
            headers={"Authorization": f"Bearer {token}"},
        )  # fmt: skip
    assert answer.status_code == 200, answer.text
