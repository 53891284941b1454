"""How jobs end on a real Docker Engine: verdict, exit code, reason, the sentence on the pull request, the whole log,
and the container gone. Jobs of one test run at the same time, because some ends take a while.
"""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass

import pytest

from tests.e2e.test_smoke import line_on_page
from tests.world import World, open_world

pytestmark = [pytest.mark.docker, pytest.mark.timeout(180)]

TOGETHER = {"docker_max_runs": "12", "workers": "32"}
WITHIN_S = 90.0
"""For many jobs at once on two cores that others use too."""


@dataclass(frozen=True, slots=True)
class End:
    """What is known of one job afterwards."""

    conclusion: str
    title: str
    body: str
    """Of the comment."""
    log: str
    result: dict[str, object]
    attempts: int

    @property
    def code(self) -> object:
        return self.result["exit_code"]

    @property
    def reason(self) -> object:
        return self.result["reason"]

    def says(self, *words: str) -> None:
        """In the part of the comment above its tables, which everybody reads."""
        top = self.body.partition("\n|")[0]
        for word in words:
            assert word in top, top


async def ends_of(world: World, **jobs: object) -> dict[str, End]:
    """Runs all of them and waits for every end."""
    specs = {name: {"run": job} if isinstance(job, str) else job for name, job in jobs.items()}
    world.jobs(**specs)
    names = list(specs)
    for at in range(0, len(names), 5):
        world.comment("\n".join(f"/gpurun {name}" for name in names[at : at + 5]))
    return {name: await end_of(world, name) for name in names}


async def end_of(world: World, job: str) -> End:
    def ended():
        found = world.github.checks(world.repo, name=f"gpurun / {job}")
        return found[-1] if found and found[-1].conclusion else None

    check = await world.until(ended, f"the end of {job}", within_s=WITHIN_S)
    symbol = "[✅❌⌛⚠🚫⛔]"
    await world.until(
        lambda: next((c for c in world.bot_comments() if re.match(rf".*\n*### gpurun {job}: {symbol}", c.body)), None),
        f"the last comment on {job}",
    )
    body = await world.expect_comment(f"### gpurun {job}: ")
    result, attempts = row_of(world, job)
    log = (await world.page(body, "log.raw")).content.decode("utf-8", "replace") if attempts else ""
    return End(check.conclusion, check.title, body, log, result, attempts)


def row_of(world: World, job: str) -> tuple[dict[str, object], int]:
    """The result of its last attempt, and how many there were."""
    question = (
        "SELECT attempt.result FROM attempt JOIN run ON run.id = attempt.run_id WHERE run.job = ?"
        " ORDER BY attempt.number"
    )
    with closing(sqlite3.connect(f"file:{world.database}?mode=ro", uri=True)) as database:
        rows = database.execute(question, (job,)).fetchall()
    return (json.loads(rows[-1][0]) if rows else {}), len(rows)


def lines_of(log: str) -> list[str]:
    """Without the agent's own."""
    return [line for line in log.splitlines() if not line.startswith("::gpurun::")]


async def test_exit_codes_and_signals(tmp_path, base_images):
    async with open_world(tmp_path, image=base_images.python, **TOGETHER) as world:
        ends = await ends_of(
            world,
            c126="echo '#!/bin/sh' > x.sh; chmod 644 x.sh; echo before; ./x.sh",
            c127="echo before; no-such-program --now",
            c137="echo before; exit 137",
            c139="echo before; python3 -c 'import os; os.kill(os.getpid(), 11)'; exit $?",
            s11="echo before; exec python3 -c 'import os; os.kill(os.getpid(), 11)'",
            s15="echo before; kill $$; sleep 5",
            s9="echo before; kill -9 $$",
            setup={"setup": "echo before; no-such-program", "run": "echo never"},
        )
    assert {name: (end.conclusion, end.code) for name, end in ends.items()} == {
        "c126": ("failure", 126), "c127": ("failure", 127), "c137": ("failure", 137), "c139": ("failure", 139),
        "s11": ("failure", 139), "s15": ("failure", 143), "s9": ("failure", 137), "setup": ("failure", 127),
    }  # fmt: skip
    for name, end in ends.items():
        assert lines_of(end.log)[0] == "before", name
        assert end.reason == ("setup" if name == "setup" else "exit")
        assert end.attempts == 1
        end.says("❌ failed", str(end.code))
    ends["c126"].says("`run` ended with exit code 126", "`chmod +x`", "./x.sh: Permission denied")
    ends["c127"].says("`run` ended with exit code 127: a command was not found", "no-such-program: not found")
    ends["setup"].says("`setup` ended with exit code 127", "no-such-program: not found")
    ends["c137"].says("`run` ended with exit code 137: killed", "not for memory")
    ends["c139"].says("`run` ended with exit code 139: segmentation fault")
    ends["s11"].says("`run` was ended by signal 11 (exit code 139): segmentation fault")
    ends["s15"].says("`run` was ended by signal 15 (exit code 143): terminated", "not by gpurun")
    ends["s9"].says("`run` was ended by signal 9 (exit code 137): killed", "not for memory")


GRAB = "python3 -c 'b = bytearray(400 << 20); print(len(b))'"
SMALL = "python3 -c 'import time; b = bytearray(8 << 20); time.sleep(6)'"


async def test_out_of_memory(tmp_path, base_images):
    async with open_world(tmp_path, image=base_images.python, **TOGETHER) as world:
        little = {"resources": {"memory": "96MB", "shm_size": "64MB"}}
        ends = await ends_of(
            world,
            big={"run": f"echo before; exec {GRAB}", **little},
            many={"run": f"echo before; for i in $(seq 25); do {SMALL} & done; wait; exit 7", **little},
            child3={"run": f"echo before; {GRAB}; echo after; exit 3", **little},
            child0={"run": f"echo before; {GRAB}; echo after", **little},
            insetup={"setup": GRAB, "run": "echo never", **little},
            b105_shm={"run": "head -c 200m /dev/zero > /dev/shm/x; echo wrote $?", **little},
            b105_own={"run": "head -c 200m /dev/zero > /dev/shm/x && echo fits", "resources": {"memory": "512MB"}},
        )
    told = {name: (end.conclusion, end.code, end.reason) for name, end in ends.items()}
    assert told.pop("many") in [("failure", 7, "exit"), ("failure", 137, "exit")]
    assert told == {
        "big": ("failure", 137, "exit"),
        "child3": ("failure", 3, "exit"),
        "child0": ("success", 0, "exit"),
        "insetup": ("failure", 137, "setup"),
        "b105_shm": ("success", 0, "exit"),
        "b105_own": ("success", 0, "exit"),
    }
    memory = "The container's memory of 96 MiB ran out, and the kernel killed"
    ends["big"].says(
        "`run` was killed, out of memory (exit code 137).", f"{memory} 1 process:", "`resources: {memory: …}`"
    )
    ends["many"].says(memory, "processes: ask for more with")
    ends["child3"].says("`run` ended with exit code 3.", f"{memory} 1 process:")
    ends["child0"].says("✅ passed", f"{memory} 1 process:")
    ends["insetup"].says("`setup` was killed, out of memory (exit code 137).")
    assert [lines_of(ends[name].log)[-1] for name in ("child3", "child0")] == ["after", "after"]
    assert "No space left on device" in ends["b105_shm"].log
    assert lines_of(ends["b105_own"].log) == ["fits"]  # half of the memory, and not Docker's 64 MB


DAEMON = """\
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open("/gpurun/work/pid", "w").write(str(os.getpid()))
while True:
    if len(sys.argv) > 1: os.write(1, b"flood " * 1000)
    else: time.sleep(1)
"""
ALIVE = "kill -0 $(cat pid) 2>/dev/null && echo alive || echo gone"
LEAVE = "python3 daemon.py; while [ ! -s pid ]; do sleep 0.02; done"


async def test_b107_b109_what_commands_leave_behind(tmp_path, base_images):
    """A child that holds the output, a daemon in a session of its own, a flood after the end, a fork bomb."""
    async with open_world(tmp_path, image=base_images.python, **TOGETHER) as world:
        world.files({"daemon.py": DAEMON})
        ends = await ends_of(
            world,
            holds="sleep 600 & echo left; exit 4",
            daemon={"setup": LEAVE, "run": ALIVE},
            flood={"setup": LEAVE.replace("daemon.py", "daemon.py flood"), "run": f"echo; {ALIVE}"},
            closed="echo early; exec >&- 2>&-; sleep 1; exit 5",
            bomb={"run": "echo boom; while :; do sleep 600 & done", "resources": {"memory": "2GB"}},
            b109_last="printf 'start\\nFINAL acc=0.91'",
        )
    assert {name: (end.conclusion, end.code) for name, end in ends.items() if name != "bomb"} == {
        "holds": ("failure", 4), "daemon": ("success", 0), "flood": ("success", 0), "closed": ("failure", 5),
        "b109_last": ("success", 0),
    }  # fmt: skip
    assert (ends["bomb"].conclusion, ends["bomb"].code) == ("failure", 2)
    assert "Cannot fork" in ends["bomb"].log
    assert lines_of(ends["holds"].log) == ["left"]
    assert lines_of(ends["daemon"].log) == ["gone"]
    assert lines_of(ends["flood"].log)[-1] == "gone"
    assert lines_of(ends["closed"].log) == ["early"]
    assert lines_of(ends["bomb"].log)[0] == "boom"
    assert lines_of(ends["b109_last"].log) == ["start", "FINAL acc=0.91"]


STUBBORN = "trap '' TERM; for i in 1 2 3; do sh -c 'trap \"\" TERM; while :; do sleep 0.2; done' & done; echo ready"
KILL_AGENT = "ps=$(cd /proc; grep -l gpurun_agent [0-9]*/cmdline 2>/dev/null | cut -d/ -f1); echo before; sleep 0.5; "


async def test_b107_who_does_not_end_and_who_ends_the_agent(tmp_path, base_images):
    """Ends that gpurun has to make, and jobs that kill what runs them: never passed, never tried again."""
    async with open_world(tmp_path, image=base_images.python, **TOGETHER) as world:
        ends = await ends_of(
            world,
            late={"run": f"{STUBBORN}; wait; sleep 600", "limits": {"max_duration": "2s"}},
            setup={"setup": f"{STUBBORN}; wait; sleep 600", "run": "echo never", "limits": {"max_duration": "2s"}},
            agent=f"{KILL_AGENT} kill -9 $ps; sleep 600",
            everybody=f"{KILL_AGENT} kill -9 -1; sleep 600",
            politely="echo before; sleep 0.5; trap '' TERM; kill -TERM 1; sleep 600",
        )
    assert {name: (end.conclusion, end.reason, end.attempts) for name, end in ends.items()} == {
        "late": ("timed_out", "max_duration", 1),
        "setup": ("timed_out", "max_duration", 1),
        "agent": ("failure", "host", 1),
        "everybody": ("failure", "host", 1),
        "politely": ("failure", "asked", 1),
    }
    for name in ("late", "setup"):
        ends[name].says("⌛ timed out", "longer than `max_duration` (2.0 s)")
        assert lines_of(ends[name].log) == ["ready"]
    for name in ("agent", "everybody"):
        ends[name].says(
            "lost", "The agent in it was killed (exit code 137), by the job, by a person, or because memory ran out"
        )
        assert lines_of(ends[name].log)[:1] == ["before"]
    ends["politely"].says("lost", "told to stop")


FILL = "echo before > kept.txt; echo filling; i=0; while :; do head -c 20m /dev/zero > f$i; i=$((i+1)); sleep 0.1; done"


async def test_b092_a_job_that_fills_its_disk(tmp_path, base_images):
    async with open_world(tmp_path, image=base_images.python, docker_disk_mib="150", **TOGETHER) as world:
        ends = await ends_of(
            world,
            asked={"run": f"trap '' TERM; {FILL}", "resources": {"disk": "100MB"}, "artifacts": ["kept.txt"]},
            default=FILL,
            volume={"run": FILL.replace("> f$i", "> /data/f$i"), "image": base_images.volume},
            enough={"run": "head -c 200m /dev/zero > f; sleep 5; echo fits", "resources": {"disk": "300MB"}},
        )
    for name, size in {
        "asked": "100MB disk:",
        "default": "150MB that a job gets by default",
        "volume": "150MB",
    }.items():
        end = ends[name]
        assert (end.conclusion, end.reason, end.attempts) == ("failure", "disk", 1), name
        end.says("❌ failed", "The job used", f"MB of the {size}", "ask for more with `resources: {disk: …}`")
        assert lines_of(end.log) == ["filling"]
        assert "of the" in end.title
    assert "kept.txt" in ends["asked"].body
    assert (ends["enough"].conclusion, lines_of(ends["enough"].log)) == ("success", ["fits"])


async def test_a_full_host_ends_the_largest_job_and_starts_none(tmp_path, base_images):
    """The reserve is far more than the disk has, once the first job runs."""
    async with open_world(tmp_path, image=base_images.python, docker_min_free_mib="0") as world:
        world.jobs(smoke={"run": "head -c 30m /dev/zero > f; echo wrote; sleep 600"}, other={"run": "echo never"})
        world.comment("/gpurun smoke")
        await line_on_page(world, await world.expect_comment("Run page"), "wrote")
        await world.bot.stop()
        await world.bot.start(GPURUN_DOCKER_MIN_FREE_MIB=str(10**9))
        end = await end_of(world, "smoke")
        world.comment("/gpurun other")
        waiting = await world.expect_comment("must stay free")
        world.comment("/gpurun cancel other")
        await world.expect_check("gpurun / other", "cancelled")
        await world.expect_comment("### gpurun other: 🚫")
    assert "The disk of the Docker Engine's machine has" in waiting
    assert (end.conclusion, end.reason, end.attempts) == ("failure", "host_disk", 1)
    end.says("lost", "The disk of the machine is full", "this job used most of it: 3")
    assert "wrote" in end.log


async def test_b103_images_of_odd_shapes(tmp_path, base_images):
    """ENTRYPOINT that is a program or never ends, USER without a name, lost WORKDIR, HEALTHCHECK, ONBUILD, VOLUME."""
    async with open_world(tmp_path, image=base_images.python, **TOGETHER) as world:
        run = """echo "$HOME && \\"quotes\\"" 'a  b' \\
            and more; pwd; id -u"""
        ends = await ends_of(
            world,
            program={"run": run, "image": base_images.entrypoint_python},
            forever={"run": run, "image": base_images.entrypoint_forever},
            odd={"run": run, "image": base_images.odd},
            noshell={"run": run, "image": base_images.no_shell},
        )
    for name, home in {"program": "/root", "forever": "/root", "odd": "/gpurun/home"}.items():
        assert (ends[name].conclusion, ends[name].code) == ("success", 0), ends[name].body
        uid = "12345" if name == "odd" else "0"
        assert lines_of(ends[name].log) == [f'{home} && "quotes" a  b and more', "/gpurun/work", uid]
    assert ends["noshell"].conclusion == "failure"
    ends["noshell"].says("/bin/sh")
