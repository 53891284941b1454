"""`setup` carried out once, with real containers: the next run has what it did, and nothing else ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.watchdogs import end_watchdogs
from tests.e2e.test_cli import Desk

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

SETUP = (
    "mkdir /opt/kit; cat req.txt > /opt/kit/installed; ln -s installed /opt/kit/link; rm -r /opt/old /etc/motd; true"
)
JOB = {
    "setup": f"mkdir -p /opt/old; {SETUP}; echo egg > app.egg; echo setup was here",
    "setup_inputs": ["req.txt"],
    "run": "cat /opt/kit/link app.egg; ls /opt /etc/motd; cat /opt/kit/installed",
}


@pytest.fixture
def desk(tmp_path, engine, base_images):
    desk = Desk(tmp_path, engine, base_images.python)
    (desk.checkout / "req.txt").write_text("numpy\n")
    yield desk
    end_watchdogs(desk.home / "watchdog")
    for name in volumes(desk, engine):
        engine.remove_volume(name, force=True)


def volumes(desk, engine) -> list[str]:
    """Of this desk."""
    label = desk.home / "layers/id"
    if not label.exists():
        return []
    found = engine.volumes(filters={"label": f"gpurun.layers={label.read_text()}"})
    return [one["Name"] for one in found["Volumes"] or ()]


def log(desk, *words: str) -> str:
    """What a run printed; it passed."""
    code, out, err = desk.run("smoke", *words)
    assert code == 0, out + err
    return out


def cache(desk, *words: str) -> dict:
    """What `gpurun cache` says."""
    env = {"PATH": os.getenv("PATH", ""), "HOME": str(desk.home), "GPURUN_STATE_DIR": str(desk.home)}
    argv = [sys.executable, "-m", "gpurun", "cache", *words, "--json"]
    return json.loads(subprocess.run(argv, env=env, capture_output=True, check=True, timeout=60).stdout)


def test_the_second_run_has_what_the_first_one_set_up(desk, engine):
    job = {**JOB, "run": JOB["run"].replace("ls /opt /etc/motd", "ls /opt; test ! -e /etc/motd")}
    desk.jobs(smoke=job)
    first = log(desk)
    assert "::gpurun:: setup\nsetup was here\n" in first
    assert "::gpurun:: setup: kept as a layer, " in first
    (volume,) = volumes(desk, engine)
    told = "::gpurun:: run\nnumpy\negg\nkit\nnumpy\n"
    assert told in first
    (desk.checkout / "other.py").write_text("print(1)\n")
    desk.jobs(smoke=job)  # another commit, with the same inputs
    second = log(desk)
    assert "::gpurun:: setup: taken from the layer of " in second
    assert "setup was here" not in second
    assert told in second
    assert volumes(desk, engine) == [volume]
    (kept,) = cache(desk, "list")["setup_layers"]
    assert (kept["volume"], kept["scope"], kept["attempts"]) == (volume, "local", [])

    (desk.checkout / "req.txt").write_text("scipy\n")
    desk.jobs(smoke=job)
    changed = log(desk)
    assert "setup was here" in changed
    assert "::gpurun:: run\nscipy\n" in changed
    assert len(volumes(desk, engine)) == 2
    (gone,) = cache(desk, "prune", "--all")["setup_layers"]
    assert (gone["removed_layers"], gone["left_bytes"]) == (2, 0)
    assert volumes(desk, engine) == []
    assert "setup was here" in log(desk)


def test_a_changed_byte_in_the_volume_is_found_and_a_new_layer_made(desk, engine):
    desk.jobs(smoke={**JOB, "run": "cat /opt/kit/installed"})
    log(desk)
    (volume,) = volumes(desk, engine)
    path = Path(engine.inspect_volume(volume)["Mountpoint"]) / "layer.tar"
    if not os.access(path, os.W_OK):
        pytest.skip("the engine's folder is not ours")
    data = bytearray(path.read_bytes())
    data[data.index(b"numpy")] ^= 1
    path.write_bytes(data)
    spoilt = log(desk)
    assert "is not taken and thrown away: its bytes are not those that were recorded" in spoilt
    assert "setup was here" in spoilt
    assert "::gpurun:: run\nnumpy\n" in spoilt
    assert volumes(desk, engine) == []
    assert "kept as a layer" in log(desk)
    assert "taken from the layer" in log(desk)


def test_run_cannot_change_what_is_recorded(desk):
    """As root, in the container whose volume it is."""
    desk.jobs(smoke={**JOB, "run": "echo evil >> /gpurun/layer/layer.tar && echo wrote || echo no"})
    assert "wrote" in log(desk)
    assert "its bytes are not those that were recorded" in log(desk)


def test_the_layer_that_is_taken_is_read_only(desk):
    is_taken = "grep ' /gpurun/layer ' /proc/mounts | grep -q '[ ,]ro[ ,]'"
    desk.jobs(smoke={**JOB, "run": f"if {is_taken}; then echo evil >> /gpurun/layer/layer.tar || echo no; fi"})
    log(desk)
    again = log(desk)
    assert "taken from the layer" in again
    assert "Read-only file system" in again
    assert "taken from the layer" in log(desk)


def test_a_container_that_is_killed_in_setup_leaves_nothing(desk, engine):
    desk.jobs(smoke={**JOB, "setup": "echo begun; sleep 60"})
    process = desk.start("smoke")
    assert process.stdout is not None
    for line in process.stdout:
        if line == "begun\n":
            break
    (container,) = desk.containers()
    engine.kill(container)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 3, out
    assert volumes(desk, engine) == []
    assert cache(desk, "list")["setup_layers"] == []


def test_a_user_without_a_name_can_do_it_too(desk, base_images):
    desk.image = base_images.user_1000
    setup = "mkdir -p $HOME/.local/kit; cat req.txt > $HOME/.local/kit/installed; echo setup was here"
    desk.jobs(smoke={"setup": setup, "setup_inputs": ["*.txt"], "run": "cat $HOME/.local/kit/installed; id -u"})
    assert "kept as a layer" in log(desk)
    again = log(desk)
    assert "taken from the layer" in again
    assert "::gpurun:: run\nnumpy\n1000\n" in again


def test_a_setup_that_changes_the_commit_is_not_kept(desk, engine):
    (desk.checkout / "a.py").write_text("1")
    desk.jobs(smoke={"setup": "echo 2 > a.py", "setup_inputs": ["req.txt"], "run": "cat a.py"})
    told = "setup: not kept as a layer: setup changed a.py, which is of the commit and not in setup_inputs"
    assert told in log(desk)
    assert volumes(desk, engine) == []


def test_what_root_without_privileges_could_not_put_there_is_not_kept(desk, base_images, engine):
    """The file is of root and of a group in which root is not."""
    desk.image = base_images.of_others
    desk.jobs(smoke={"setup": "echo '#' >> /etc/shadow", "setup_inputs": ["req.txt"], "run": "tail -n 1 /etc/shadow"})
    told = "setup: not kept as a layer: /etc/shadow, which setup made or changed, is of another user or group"
    assert told in log(desk)
    assert volumes(desk, engine) == []
    assert "::gpurun:: run\n#\n" in log(desk)
