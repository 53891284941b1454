"""Artifacts from a real container to a person's folder: however the job ended, and whoever died in the middle of it."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.e2e.test_ends import end_of, ends_of
from tests.e2e.test_smoke import line_on_page
from tests.world import World, open_world
from tests.world.rows import let_leases_pass

pytestmark = [pytest.mark.docker, pytest.mark.timeout(240)]

LEAVE = "mkdir -p out; echo half > out/half.txt; echo ready"
MANY = {"docker_max_runs": "8", "workers": "16"}
LARGE_BYTES = 400_000_000
LARGE = f"mkdir -p out; echo first > out/a; yes 0123456789abcde | head -c {LARGE_BYTES} > out/large; echo last > out/z"
"""Some seconds to send: `out/a` is whole by then, and `out/z` was never begun."""


def get(world: World, body: str, folder: Path, *words: str) -> dict:
    """What `gpurun artifacts` says and does, with the link of the comment."""
    argv = [sys.executable, "-m", "gpurun", "artifacts", "-", "--to", str(folder), "--json", *words]
    address = world.url + world.page_in(body)
    done = subprocess.run(argv, input=address, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def in_folder(folder: Path) -> dict[str, str]:
    """By path, without what was installed, which is always there."""
    found = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert "\n# dpkg\n" in found.pop("gpurun/installed.txt")
    return found


async def test_artifacts_are_kept_however_the_job_ends(tmp_path, base_images):
    half = {"artifacts": ["out/**"]}
    fill = "i=0; while :; do head -c 20m /dev/zero > f$i; i=$((i+1)); sleep 0.1; done"
    async with open_world(tmp_path, image=base_images.python, artifact_mib="1", **MANY) as world:
        ends = await ends_of(
            world,
            passes={"run": f"{LEAVE}; ln -s /etc/passwd out/link; head -c 2000000 /dev/zero > out/big", **half},
            fails={"run": f"{LEAVE}; exit 3", **half},
            late={"run": f"{LEAVE}; sleep 600", "limits": {"max_duration": "2s"}, **half},
            disk={"run": f"{LEAVE}; {fill}", "resources": {"disk": "100MB"}, **half},
        )
        stay = f"trap 'echo rest >> out/half.txt; exit 1' TERM; {LEAVE}; while :; do sleep 0.1; done"
        world.jobs(stays={"run": stay, **half})
        world.comment("/gpurun stays")
        await line_on_page(world, await world.expect_comment("### gpurun stays: "), "ready")
        world.comment("/gpurun cancel stays")
        ends["stays"] = await end_of(world, "stays")
        told = {name: get(world, end.body, tmp_path / name) for name, end in ends.items()}
        archive = await world.page(ends["passes"].body, "artifacts/1.tar")
    assert {name: (end.conclusion, end.reason) for name, end in ends.items()} == {
        "passes": ("success", "exit"), "fails": ("failure", "exit"), "late": ("timed_out", "max_duration"),
        "disk": ("failure", "disk"), "stays": ("cancelled", "asked"),
    }  # fmt: skip
    for name in ends:
        assert in_folder(tmp_path / name) == {"out/half.txt": "half\n" + ("rest\n" if name == "stays" else "")}
        assert f"Manifest `{told[name]['manifest']}`" in ends[name].body
    assert "larger than the 1.0 MiB that one file may have: out/big, 1.9 MiB" in ends["passes"].body
    assert "1, link that leads out of the work folder: out/link." in ends["passes"].body
    (tmp_path / "all.tar").write_bytes(archive.content)
    names = subprocess.run(["tar", "tf", tmp_path / "all.tar"], check=True, capture_output=True, text=True).stdout
    run = told["passes"]["run"]
    assert names.splitlines() == [f"{run}-1.json", f"{run}-1/gpurun/installed.txt", f"{run}-1/out/half.txt"]


async def test_after_a_hard_end_what_was_sent_is_whole_and_the_next_run_has_all(tmp_path, base_images):
    """The container is killed while a file is on its way, then the agent; and at last nobody."""
    async with open_world(tmp_path, image=base_images.python) as world:
        seen: set[str] = set()
        for number, victim in enumerate(("container", "agent", "")):
            world.jobs({f"{number}": "new"}, smoke={"run": LARGE, "artifacts": ["out/*"]})
            world.comment("/gpurun smoke")
            if victim:
                await sending(world, tmp_path)
                kill(world, victim)
            body = await ended_comment(world, seen)
            told = get(world, body, tmp_path / f"to-{number}")
            there = {path.name: path for path in (tmp_path / f"to-{number}").rglob("*") if path.is_file()}
            assert there.pop("a").read_text() == "first\n"
            assert there.pop("installed.txt").read_text().startswith("# python 3.")
            page = (await world.page(body)).text
            if victim:
                assert "lost" in body
                assert there == {}
                assert "artifacts/1/out/large" not in page
                assert (await world.page(body, "artifacts/1/out/large")).status_code == 404
            else:
                assert there.pop("z").read_text() == "last\n"
                assert there.pop("large").stat().st_size == LARGE_BYTES
                assert there == {}
            assert told["complete"]
            await world.expect_no_container()


async def test_a_bot_that_is_killed_while_a_file_is_sent_has_it_whole_in_the_end(tmp_path, base_images):
    async with open_world(tmp_path, image=base_images.python) as world:
        world.jobs(smoke={"run": LARGE, "artifacts": ["out/*"]})
        world.comment("/gpurun smoke")
        for _ in range(2):
            await sending(world, tmp_path)
            world.bot.kill()
            let_leases_pass(world.database)
            await world.bot.start()
        body = await ended_comment(world, set())
        assert "passed" in body
        told = get(world, body, tmp_path / "to")
    assert [file["path"] for file in told["files"]] == ["gpurun/installed.txt", "out/a", "out/large", "out/z"]
    with (tmp_path / "to/out/large").open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == told["files"][2]["sha256"]


async def ended_comment(world: World, seen: set[str]) -> str:
    """Of the run that is not in `seen`; it is afterwards."""

    def look() -> str | None:
        for one in world.bot_comments():
            run = re.search(r"/runs/(\w+)\?key", one.body)
            if (
                run is not None
                and run[1] not in seen
                and re.search(r"^### gpurun smoke: [✅⚠❌]", one.body, re.MULTILINE)
            ):
                seen.add(run[1])
                return one.body
        return None

    body = await world.until(look, "the end", within_s=90)
    return await world.expect_comment(body)


async def sending(world: World, tmp_path: Path) -> None:
    """Until a part of the large file is there, a larger one each time."""
    blobs = tmp_path / "state" / "blobs"

    def sizes() -> list[int]:
        return [file.stat().st_size for file in blobs.rglob("artifacts,*,2")]

    with anyio.fail_after(60):
        before = sum(sizes())
        while sum(sizes()) < before + LARGE_BYTES // 8:
            await anyio.sleep(0.01)
    assert max(sizes()) < LARGE_BYTES


def kill(world: World, victim: str) -> None:
    (container,) = [one["Id"] for one in world.containers() if one["State"] == "running"]
    if victim == "container":
        world._engine.kill(container, "KILL")
    else:
        world.in_container(
            container, "sh", "-c", "for p in /proc/[0-9]*; do grep -q agent.pyz $p/cmdline && kill -9 ${p#/proc/}; done"
        )
