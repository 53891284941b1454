"""Logs as jobs really write them, over restarts of the bot and bad lines: what is stored is what was printed."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from pathlib import Path

import pytest

from tests.world import World, open_world
from tests.world.nursery import Nursery
from tests.world.rows import let_leases_pass, select
from tests.world.shifted import ShiftedClock
from tests.world.uplink_proxy import CUT_WITHIN, UplinkProxy

pytestmark = pytest.mark.docker

MB = 1_000_000
OURS = b"::gpurun:: run\n"
HIGH_WATER = "grep -E 'VmHWM' /proc/$PPID/status > high"
"""Memory of the agent, the parent of the command."""
AGENT_KIB = 64 * 1024
BOT_KIB = 256 * 1024
WITHIN_S = 120.0
"""How long it may take on a busy machine."""
END = re.compile(rb"\nsha256 ([0-9a-f]{64})\n")

NOISE = """\
import hashlib, os, random, sys, time
left = int(sys.argv[1])
gates = {left * 7 // 10: "go1", left * 3 // 10: "go2", -1: ""}
gate = max(gates)
chance, sha = random.Random(5), hashlib.sha256()
spice = [b"\\r 50%|", b"\\x1b[31m", b"\\x1b]8;;http://x\\x07", b"\\0\\0\\0", b"\\xff\\xfe\\xc3", b"\\n\\n", b"\\r\\n"]
while left:
    size = chance.choice([1, 1, 3, 80, 4095, 4096, 65536, 65537, 300_000, chance.randrange(1, 300_000)])
    piece = (chance.choice(spice) + chance.randbytes(size))[:left]
    sha.update(piece)
    left -= len(piece)
    while piece:
        piece = piece[os.write(1, piece):]
    while left < gate and not os.path.exists(gates[gate]):
        time.sleep(0.02)
    gate = max(at for at in gates if at <= left)
print("\\nsha256", sha.hexdigest())
"""


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


def stored(world: World) -> int:
    """Bytes of the newest log."""
    rows = select(world.database, "SELECT next FROM stream WHERE name = 'log' ORDER BY attempt_id DESC LIMIT 1")
    return int(rows[0]["next"]) if rows else 0


async def grows_to(world: World, size: int) -> None:
    await world.until(lambda: True if stored(world) >= size else None, f"{size} bytes of log", within_s=WITHIN_S)


def uplink(world: World, folder: Path) -> Path:
    (socket,) = folder.glob("state/up/*/s/bot.sock")
    return socket


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("size", "postgres"), [(100 * MB, False), pytest.param(10 * MB, True, marks=pytest.mark.postgres)]
)
async def test_a_log_over_two_deaths_of_the_bot_and_a_line_that_is_cut(
    request, tmp_path, base_images, nursery, size, postgres
):
    database_url = request.getfixturevalue("postgres_url") if postgres else ""
    image = base_images.python
    async with open_world(tmp_path, image=image, nursery=nursery, database_url=database_url) as world:
        await noise_arrives(world, tmp_path, size)


async def noise_arrives(world: World, folder: Path, size: int) -> None:
    """The story: every byte of it, once."""
    world.jobs({"noise.py": NOISE}, smoke={"run": f"python3 noise.py {size}; {HIGH_WATER}", "artifacts": ["high"]})
    world.comment("/gpurun smoke")
    await grows_to(world, size // 5)  # of three tenths that it prints before the first gate
    await die(world, "go1")
    proxy = UplinkProxy(world.url)
    async with proxy.in_place_of(uplink(world, folder), Path(f"/tmp/gpurun-{folder.name[-20:]}.sock")):
        await world.bot.start()
        await world.until(lambda: proxy.cuts == len(CUT_WITHIN) or None, "cuts")
        await grows_to(world, size // 2)
        await die(world, "go2")
    await world.bot.start()
    await world.expect_check("gpurun / smoke", "success", within_s=WITHIN_S)
    body = await world.expect_comment("✅ passed")
    log = (await world.page(body, "log.raw")).content
    printed, told = END.split(log.removeprefix(OURS))[:2]
    assert len(printed) == size
    assert hashlib.sha256(printed).hexdigest() == told.decode()
    high_kib = int((await world.page(body, "artifacts/1/high")).text.split()[1])
    assert high_kib < AGENT_KIB, f"the agent used {high_kib} KiB"
    high_kib = world.bot.high_water_kib()
    assert high_kib < BOT_KIB, f"the bot used {high_kib} KiB"


async def die(world: World, gate: str) -> None:
    """The bot is dead, and the job goes on."""
    world.bot.kill()
    let_leases_pass(world.database)
    world.in_container(world.containers()[0]["Id"], "touch", f"/gpurun/work/{gate}")


HOSTILE = """\
import sys
out = sys.stdout.buffer
for step in range(30_000):
    out.write(b"\\r %3d%%|####| %d/30000" % (step // 300, step))
out.write(b"\\n\\x1b[31mERR\\x1b[0m \\x1b]8;;http://evil.example\\x07link\\x1b]8;;\\x07 ")
out.write(b"\\x1b]52;c;cm0gLXJmIH4=\\x07\\n")
out.write(b"\\xff\\xfe\\x00\\x80 caf\\xc3\\xa9\\n</details>\\n````\\n```\\n")
out.write(b"::set-env name=PATH::/evil\\n::add-mask::x\\n@acme/all\\n")
out.write(b"\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x03ab\\n")
"""
HOSTILE_TEXT = (
    "  99%|####| 29999/30000\nERR link \n\ufffd\ufffd\ufffd café\n</details>\n````\n```\n"
    "::set-env name=PATH::/evil\n::add-mask::x\n@acme/all\nab\n"
)
QUOTA = 8 * 1024 * 1024


@pytest.mark.timeout(240)
async def test_b096_b100_b109_logs_that_are_hard_to_take(tmp_path, base_images):
    """A line of 1 GB, a million empty ones, what steers terminals and pages, and ends that are easily lost."""
    settings = {"log_quota_mib": "8", "docker_max_runs": "8"}
    async with open_world(tmp_path, image=base_images.python, **settings) as world:
        world.jobs(
            {"hostile.py": HOSTILE},
            line={"run": f"head -c 1000000000 /dev/zero | tr '\\0' x; {HIGH_WATER}; exit 5", "artifacts": ["high"]},
            empty={"run": "echo acc=0.91; yes '' | head -n 1000000"},
            b100_hostile={"run": "python3 hostile.py"},
            b109_last={"run": "printf 'start\\nFINAL acc=0.91'"},
            b109_short={"run": ":"},
            b109_burst={"run": "yes 0123456789abcde | head -c 5000000; printf FINAL; exit 3"},
        )
        world.comment("/gpurun line\n/gpurun empty\n/gpurun b100_hostile\n/gpurun b109_last\n/gpurun b109_short")
        world.comment("/gpurun b109_burst")
        ends = {"line": "failure", "b109_burst": "failure"}
        bodies = {}
        for job in ("line", "empty", "b100_hostile", "b109_last", "b109_short", "b109_burst"):
            await world.expect_check(f"gpurun / {job}", ends.get(job, "success"), within_s=WITHIN_S)
            word = "❌ failed" if job in ends else "✅ passed"
            bodies[job] = await world.expect_comment(f"gpurun {job}: {word}")
        logs = {job: (await world.page(body, "log.raw")).content for job, body in bodies.items()}
        shown = {job: (await world.page(body, "log")).text for job, body in bodies.items()}
        pages = {job: (await world.page(body)).text for job, body in bodies.items()}
        high = (await world.page(bodies["line"], "artifacts/1/high")).text
    for page in (*pages.values(), *bodies.values()):
        assert len(page.encode()) < 120_000

    kept, told = re.fullmatch(rb"::gpurun:: run\n(x*)\n(::gpurun:: [^\n]*\n::gpurun:: [^\n]*\n)", logs["line"]).groups()
    assert len(logs["line"]) <= QUOTA < len(logs["line"]) + 300
    discarded = b" %d bytes of output were discarded; GPURUN_LOG_QUOTA_MIB of the server keeps more\n"
    assert told.endswith(discarded % (1_000_000_000 - len(kept)))
    assert "exit code 5" in bodies["line"]
    assert "GPURUN_LOG_QUOTA_MIB" in bodies["line"]
    assert "GPURUN_LOG_QUOTA_MIB" in pages["line"]
    assert shown["line"] == logs["line"].decode()
    assert int(high.split()[1]) < AGENT_KIB, high

    assert logs["empty"] == OURS + b"acc=0.91\n" + b"\n" * 1_000_000
    assert "acc=0.91" in bodies["empty"]
    assert "Log, last 2 lines of 1.0 MB" in bodies["empty"]

    assert logs["b100_hostile"].endswith(b"@acme/all\n\x01\x00\x00\x00\x00\x00\x00\x03ab\n")
    assert len(logs["b100_hostile"]) > 600_000
    assert shown["b100_hostile"] == OURS.decode() + HOSTILE_TEXT
    assert HOSTILE_TEXT.strip() in bodies["b100_hostile"]
    assert "`````text\n" in bodies["b100_hostile"]
    for view in (bodies["b100_hostile"], pages["b100_hostile"], shown["b100_hostile"]):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", view)
        assert "evil.example" not in view

    assert logs["b109_last"] == OURS + b"start\nFINAL acc=0.91"
    assert "FINAL acc=0.91" in bodies["b109_last"]
    assert logs["b109_short"] == OURS
    assert logs["b109_burst"] == OURS + (b"0123456789abcde\n" * 312_500)[:5_000_000] + b"FINAL"
    assert "FINAL" in bodies["b109_burst"]


COUNT = "echo begun; while [ ! -e go ]; do sleep 0.05; done; seq 1 50000; echo the end; exit 4"
COUNTED = b"begun\n" + b"".join(b"%d\n" % number for number in range(1, 50_001)) + b"the end\n"
AHEAD_S = 20
"""From the start of a job to its hard deadline."""
DEADLINE_S = 120 + 60 + 600 + 1800
"""Boot, `max_duration`, spare and preparing: how far the engine puts it off."""


@pytest.mark.timeout(180)
async def test_jobs_that_end_while_there_is_no_bot(tmp_path, base_images, nursery):
    """One waits for the bot until its deadline, one is stopped while it waits, one is killed."""
    clock = ShiftedClock(tmp_path / "shift")
    clock.advance(AHEAD_S - DEADLINE_S)
    environment = {"SHIFTED_CLOCK": str(tmp_path / "shift")}
    async with open_world(
        tmp_path, image=base_images.python, clock=clock, nursery=nursery, environment=environment, docker_max_runs="4"
    ) as world:
        job = {"run": COUNT, "limits": {"max_duration": "60s"}}
        world.jobs(waits=job, stopped=job, killed=job)
        started = time.monotonic()
        world.comment("/gpurun waits\n/gpurun stopped\n/gpurun killed")
        containers = await world.until(lambda: begun(world), "three jobs that have begun")
        world.bot.kill()
        for container in containers.values():
            world.in_container(container, "touch", "/gpurun/work/go")
        engine = world._engine
        await world.until(lambda: all_counted(world, containers) or None, "jobs that have printed all")
        engine.kill(containers["killed"])
        engine.stop(containers["stopped"], timeout=15)
        assert time.monotonic() - started < AHEAD_S, "the machine is too slow for this deadline"
        left = await asyncio.to_thread(engine.wait, containers["waits"], timeout=60)
        assert left["StatusCode"] in (75, 143), engine.logs(containers["waits"])[-500:]
        clock.advance(DEADLINE_S - AHEAD_S)
        await world.bot.start()
        for job in ("waits", "stopped"):
            await world.expect_check(f"gpurun / {job}", "failure")
            body = await world.expect_comment(f"gpurun {job}: ❌ failed")
            assert "exit code 4" in body
            assert (await world.page(body, "log.raw")).content == OURS + COUNTED, job
        await world.expect_check("gpurun / killed", "timed_out")
        body = await world.expect_comment("gpurun killed: ⌛ timed out")
        assert "The log may be incomplete." in body
        log = (await world.page(body, "log.raw")).content
        assert log == OURS + b"begun\n::gpurun:: the log may be incomplete: the agent did not report its end\n"


def begun(world: World) -> dict[str, str] | None:
    """Containers by job, when the bot has the first line of each."""
    rows = select(
        world.database,
        "SELECT run.job, attempt.instance_ref FROM attempt JOIN run ON run.id = attempt.run_id"
        " JOIN stream ON stream.attempt_id = attempt.id AND stream.name = 'log' WHERE stream.next > 20",
    )
    return {row["job"]: row["instance_ref"] for row in rows} if len(rows) == 3 else None


def all_counted(world: World, containers: dict[str, str]) -> bool:
    """Only boot script, watchdog and agent are left of each."""
    rows = [row for one in containers.values() for row in world._engine.top(one)["Processes"]]
    return not any("the end" in " ".join(row) for row in rows)
