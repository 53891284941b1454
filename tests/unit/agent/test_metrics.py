"""Metrics: what the machine says, and null where it does not."""

from __future__ import annotations

import json

import pytest

from gpurun_agent.command import oom_kills
from gpurun_agent.gpu import parse
from gpurun_agent.sample import Sampler, quoted
from tests.unit.agent.fake_bot import pause, with_code

ROW = "0, GPU-0, NVIDIA L40S, 9, 1235, 46068, 110.23, 54, 2520\n"

GONE = "[Requested functionality has been deprecated]"
NOTHING = f"1, GPU-1, NVIDIA H200, [N/A], [Not Supported], [Unknown Error], , {GONE}, nan\n"


def test_rows_of_nvidia_smi():
    first, second = (json.loads(gpu.json()) for gpu in parse(ROW + NOTHING))
    assert first == {
        "index": 0,
        "uuid": "GPU-0",
        "name": "NVIDIA L40S",
        "util_pct": 9,
        "vram_mib": 1235,
        "vram_total_mib": 46068,
        "power_w": 110.2,
        "temp_c": 54,
        "sm_mhz": 2520,
    }
    assert second["index"] == 1
    assert {second[key] for key in second if key not in ("index", "uuid", "name")} == {None}


@pytest.mark.parametrize(
    "text",
    ["", "No devices were found\n", "NVIDIA-SMI has failed because it couldn't communicate with the driver, or so\n"],
)
def test_an_error_of_nvidia_smi_is_no_gpu(text):
    assert parse(text) == []


def nvidia_smi(folder, script: str) -> str:
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    return str(folder)


def lines(bot) -> list[dict]:
    return [json.loads(line) for line in bot.streams["metrics"].splitlines()]


def test_gpus_come_with_every_line(bot, run, tmp_path):
    run("sleep 1.3", programs=nvidia_smi(tmp_path, f"echo '{ROW.strip()}'"))
    assert lines(bot)[0]["gpus"][0]["util_pct"] == 9


def test_a_hanging_nvidia_smi_holds_nothing(bot, run, tmp_path):
    text = with_code("gpu", "TIMEOUT_S = 0.2")
    run("sleep 1.3; echo end", first=text, programs=nvidia_smi(tmp_path, "trap '' TERM; exec sleep 60"))
    assert bot.output == b"end\n"
    assert lines(bot)[0]["gpus"] == []


@pytest.fixture
def machine(tmp_path):
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "net").mkdir(parents=True)
    cgroup.mkdir()
    (proc / "meminfo").write_text("MemTotal:       2048000 kB\nMemAvailable:   1024000 kB\n")
    (proc / "net" / "dev").write_text(
        "Inter-|   Receive\n face |bytes\n    lo: 99 1 0 0 0 0 0 0 99 1 0 0 0 0 0 0\n"
        "  eth0: 1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n  eth1: 1 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0\n"
    )

    def sampler() -> Sampler:
        return Sampler(None, str(tmp_path), proc=str(proc), cgroup=str(cgroup))

    return proc, cgroup, sampler


def test_control_groups_version_2(machine):
    _, cgroup, sampler = machine
    (cgroup / "memory.current").write_text(str(300 << 20))
    (cgroup / "memory.max").write_text(str(1 << 30))
    (cgroup / "memory.stat").write_text(f"anon 1\ninactive_file {100 << 20}\n")
    (cgroup / "cpu.stat").write_text("usage_usec 1000000\nuser_usec 1\n")
    (cgroup / "cpu.max").write_text("50000 100000\n")
    sampling = sampler()
    (cgroup / "cpu.stat").write_text("usage_usec 1001000\n")
    pause(0.02)
    line = json.loads(sampling.line("running"))
    assert (line["ram_mib"], line["ram_total_mib"]) == (200, 1024)
    # 1 ms of CPU in at least 20 ms on half a core.
    assert 0 < line["cpu_pct"] <= 10
    assert (line["net_rx_bytes"], line["net_tx_bytes"]) == (1001, 502)
    assert line["phase"] == "running"


def test_control_groups_version_1_without_a_limit(machine):
    _, cgroup, sampler = machine
    for folder in ("memory", "cpuacct", "cpu"):
        (cgroup / folder).mkdir()
    (cgroup / "memory" / "memory.usage_in_bytes").write_text(str(300 << 20))
    (cgroup / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (cgroup / "memory" / "memory.stat").write_text(f"total_inactive_file {50 << 20}\n")
    (cgroup / "cpuacct" / "cpuacct.usage").write_text("5\n")
    line = json.loads(sampler().line("setup"))
    assert (line["ram_mib"], line["ram_total_mib"]) == (250, 2000)
    assert line["cpu_pct"] == 0


def test_without_control_groups_the_machine_speaks(machine):
    proc, _, sampler = machine
    (proc / "stat").write_text("cpu  1 2 3 4 5 6 7 8 9 10\n")
    line = json.loads(sampler().line("setup"))
    assert (line["ram_mib"], line["ram_total_mib"]) == (1000, 2000)
    assert line["cpu_pct"] == 0


def test_nothing_known_is_null(tmp_path):
    missing = str(tmp_path / "missing")
    line = json.loads(Sampler(None, missing, proc=missing, cgroup=missing).line("setup"))
    assert line.pop("gpus") == []
    assert isinstance(line.pop("t"), float)
    assert line.pop("phase") == "setup"
    assert set(line.values()) == {None}


@pytest.mark.parametrize(
    ("name", "text", "kills"),
    [
        ("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n", 2),
        ("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", 5),
        ("other", "", 0),
    ],
)
def test_kills_for_memory_are_counted_in_both_versions(tmp_path, name, text, kills):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert oom_kills(str(tmp_path)) == kills


def test_strings_are_json():
    assert json.loads(quoted('a "b" \\ \n é')) == 'a "b" \\ \n é'
