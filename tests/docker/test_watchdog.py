"""The host watchdog as a process, on a real engine: it outlives its bot, and ends what nobody else ends."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gpurun.provider_kit.boot import boot_script
from gpurun.providers.docker import watchdog_program
from gpurun.providers.docker.watchdog import HostWatchdog, Pace
from tests.docker.watchdogs import Process, end_watchdogs, watchdogs

WITHIN_S = 20.0
BAD_AGENT = b'''
import os, signal, time
def main():
    """Kills the boot script's own watchdog, and is deaf."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for pid in [name for name in os.listdir("/proc") if name.isdigit() and int(name) > 1]:
        if b"boot.sh" in open("/proc/%s/cmdline" % pid, "rb").read():
            os.kill(int(pid), signal.SIGKILL)
            print("killed", pid, flush=True)
    time.sleep(600)
'''


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "watchdog"
    yield folder
    end_watchdogs(folder)


def until(look: Callable[[], bool], what: str) -> None:
    pause, began = threading.Event(), time.monotonic()
    while not look():
        assert time.monotonic() - began < WITHIN_S, f"waited {WITHIN_S:g} s for {what}"
        pause.wait(0.02)


@pytest.mark.docker
async def test_what_a_bot_killed_for_good_leaves_is_ended(docker_bench, launches, base_images, folder, tmp_path):
    """The whole process group dies, and the job has killed the container's own watchdog."""
    agent = io.BytesIO()
    with zipfile.ZipFile(agent, "w") as archive:
        archive.writestr("gpurun_agent/__init__.py", "")
        archive.writestr("gpurun_agent/main.py", BAD_AGENT)
    (tmp_path / "bad.pyz").write_bytes(agent.getvalue())
    bad = {"agent_path": str(tmp_path / "bad.pyz"), "agent_sha256": hashlib.sha256(agent.getvalue()).hexdigest()}
    wild, paused, later, foreign = [launches(base_images.python, boot_script(), **bad) for _ in range(4)]
    assert (await docker_bench.provider.prepare(wild, wait_s=60)).ready
    untouched = await docker_bench.provider.create(foreign)

    bot = subprocess.Popen(
        [sys.executable, "-m", "tests.docker.bot_to_kill"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={"PATH": os.getenv("PATH", ""), "GPURUN_WEBHOOK_SECRET": "not for children"},
    )
    assert bot.stdin is not None
    assert bot.stdout is not None
    network = docker_bench.provider._config.network
    todo = {"network": network, "folder": str(folder), "launches": [(wild, 6), (paused, 6), (later, 600)]}
    pickle.dump(todo, bot.stdin)
    bot.stdin.flush()
    refs = [bot.stdout.readline().decode().strip() for _ in range(3)]
    docker_bench.engine.pause(refs[1])
    os.killpg(bot.pid, signal.SIGKILL)
    bot.communicate()

    for ref in refs[:2]:
        assert docker_bench.engine.wait(ref, timeout=WITHIN_S)["StatusCode"] == 137
    said = await docker_bench.provider.logs(refs[0], max_bytes=1000)
    assert said.startswith(b"killed "), "what the engine kept can still be read"
    for ref in (refs[2], untouched):
        assert docker_bench.engine.inspect_container(ref)["State"]["Status"] == "running"

    (process,) = watchdogs(folder)
    (log,) = folder.glob("*.log")
    told = sorted(line.split()[1:3] for line in log.read_text().splitlines()[1:])
    assert told == sorted(["killed", f"{one.name},"] for one in (wild, paused)), "both were due in the same second"
    assert process.resident_mib < 15
    assert process.environment == b""
    assert process.open_files == {os.devnull, str(log), str(log.with_suffix(".lock"))}
    assert Path(f"/proc/{process.pid}/comm").read_text() == "gpurun-watchdog\n"
    assert os.getsid(process.pid) == process.pid
    for ref in (*refs, untouched):
        await docker_bench.provider.destroy(ref)
    until(lambda: not watchdogs(folder), "the watchdog's end, because nothing is left")
    assert log.read_text().endswith("nothing is left to watch\n")


def the_one(folder: Path) -> Process:
    until(lambda: len(watchdogs(folder)) == 1, "one watchdog")
    return watchdogs(folder)[0]


def ensure_at_once(dogs: list[HostWatchdog], socket_path: str) -> None:
    threads = [threading.Thread(target=dog.ensure, args=(socket_path,)) for dog in dogs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_many_bots_on_one_folder_have_one_watchdog(folder, tmp_path):
    """Whether or not the engine is there."""
    dogs = [HostWatchdog(folder) for _ in range(8)]
    ensure_at_once(dogs * 3, f"{tmp_path}/docker.sock")
    the_one(folder)
    assert len({dog.mark for dog in dogs}) == 1
    ensure_at_once(dogs, f"{tmp_path}/another.sock")
    until(lambda: len(watchdogs(folder)) == 2, "one for each engine")


def test_one_that_was_killed_is_started_again_and_leaves_no_zombie(folder, tmp_path):
    dog = HostWatchdog(folder)
    dog.ensure(f"{tmp_path}/docker.sock")
    first = the_one(folder)
    first.kill()
    until(lambda: not watchdogs(folder), "its end")
    dog.ensure(f"{tmp_path}/docker.sock")
    second = the_one(folder)
    assert second.pid != first.pid
    assert not Path(f"/proc/{first.pid}").exists()


def test_a_newer_version_takes_over_from_an_older_one_without_letting_go(folder, tmp_path, monkeypatch):
    newer = Path(watchdog_program.__file__)
    text = newer.read_text()
    for new, old in (("VERSION = 1\n", "VERSION = 0\n"), ("_S = 15.0\n", "_S = 0.5\n"), ("_S = 2.0\n", "_S = 0.0\n")):
        assert new in text
        text = text.replace(new, old)
    (tmp_path / "older.py").write_text(text)
    socket_path = f"{tmp_path}/docker.sock"
    with monkeypatch.context() as past:
        past.setattr(watchdog_program, "__file__", str(tmp_path / "older.py"))
        past.setattr(watchdog_program, "VERSION", 0)
        HostWatchdog(folder).ensure(socket_path)
    old = the_one(folder)
    lock = HostWatchdog(folder).lock_path(socket_path)
    until(lambda: lock.read_text() == f"0 {old.pid}\n", "the older one")
    HostWatchdog(folder).ensure(socket_path)
    until(lambda: lock.read_text() == f"1 {old.pid}\n", "the newer one, in the same process")
    assert str(newer) in Path(f"/proc/{old.pid}/cmdline").read_text()
    HostWatchdog(folder).ensure(socket_path)
    assert len(watchdogs(folder)) == 1
    assert not list(folder.glob("*.next"))


def test_a_second_one_by_hand_leaves_at_once(folder, tmp_path):
    socket_path = f"{tmp_path}/docker.sock"
    dog = HostWatchdog(folder, Pace(grace_s=1, idle_s=60))
    dog.ensure(socket_path)
    with dog.lock_path(socket_path).open("r+") as lock:
        argv = [sys.executable, "-I", "-S", watchdog_program.__file__, "gpurun-watchdog"]
        argv += [dog.mark, str(dog.lock_path(socket_path)), socket_path, "1", "60"]
        done = subprocess.run(["sh", "-c", 'exec "$@" 3<&0', "sh", *argv], stdin=lock, timeout=WITHIN_S, check=False)
    assert done.returncode == 0
    the_one(folder)


def test_a_folder_that_cannot_be_written_is_told_once_and_stops_nothing(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    dog = HostWatchdog(tmp_path / "file" / "watchdog")
    for _ in range(2):
        dog.ensure(f"{tmp_path}/docker.sock")
    assert dog.mark == ""
    assert capsys.readouterr().out.count("host_watchdog_not_started") == 1
