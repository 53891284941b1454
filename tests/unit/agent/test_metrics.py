"""Metrics: what the machine says, and null where it does not."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpurun_agent.command import memory_limit_mib, oom_kills
from gpurun_agent.sample import Sampler, quoted
from tests.unit.agent.fake_bot import pause


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


CGROUP_V2 = Path(__file__).parents[2] / "data" / "cgroup-v2"


def test_control_groups_version_2_as_a_container_sees_them(machine, tmp_path):
    proc, cgroup, sampler = machine
    (proc / "meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable: 1 kB\n")
    shutil.copytree(CGROUP_V2, cgroup, dirs_exist_ok=True)
    sampling = sampler()
    line = json.loads(sampling.line("running"))
    assert (line["ram_mib"], line["ram_total_mib"]) == (400, 4096)
    assert line["cpu_pct"] == 0
    assert sampling._cores == min(1.5, len(os.sched_getaffinity(0)))
    assert oom_kills(str(cgroup)) == 2


@pytest.mark.parametrize("limit", ["max", "", "-1", "18446744073709551615", "9" * 5000, "0x10"])
def test_no_limit_of_memory_is_the_machine(machine, limit):
    _, cgroup, sampler = machine
    shutil.copytree(CGROUP_V2, cgroup, dirs_exist_ok=True)
    (cgroup / "memory.max").write_text(limit + "\n")
    assert json.loads(sampler().line("running"))["ram_total_mib"] == 2000


@pytest.mark.parametrize("limit", ["max 100000", "max", "", "0 100000", "50000 0", "-1 100000", "x y"])
def test_no_limit_of_the_cores_is_all_of_them(machine, limit):
    _, cgroup, sampler = machine
    (cgroup / "cpu.max").write_text(limit + "\n")
    assert sampler()._cores == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("cpu.stat", "usage_usec 2000000", "usage_usec 1000000"), ("cpuacct/cpuacct.usage", "2000000000", "1000000000")],
)
def test_a_counter_that_goes_back_says_nothing(machine, name, before, after):
    _, cgroup, sampler = machine
    (cgroup / name).parent.mkdir(exist_ok=True)
    (cgroup / name).write_text(before)
    sampling = sampler()
    (cgroup / name).write_text(after)
    assert json.loads(sampling.line("running"))["cpu_pct"] is None
    assert json.loads(sampling.line("running"))["cpu_pct"] == 0


@pytest.mark.parametrize("word", ["", "max", "-5", "x", "1.5", "9" * 30])
def test_figures_that_are_none_are_null(machine, word):
    proc, _, sampler = machine
    (proc / "meminfo").write_text(f"MemTotal: {word} kB\nMemAvailable: {word} kB\n")
    (proc / "stat").write_text(f"cpu  1 {word} 3\n")
    (proc / "net" / "dev").write_text(f"Inter-|\n face |\n eth0: {word} 1 0 0 0 0 0 0 {word or 'x'} 1 0 0 0 0 0 0\n")
    line = json.loads(sampler().line("running"))
    assert {line[key] for key in ("cpu_pct", "ram_mib", "ram_total_mib")} == {None}
    assert {line[key] for key in ("net_rx_bytes", "net_tx_bytes")} <= {None, 1}


FILES = ("memory.current", "memory.max", "memory.stat", "cpu.stat", "cpu.max", "memory.events", "meminfo", "stat")
TEXTS = st.one_of(
    st.sampled_from(
        ["max\n", "usage_usec ", "inactive_file x", "cpu  1 2", "MemTotal: 5 kB\nMemAvailable: 9 kB", "-1"]
    ),
    st.integers(-5, 1 << 70).map(lambda n: f"{n}\n"),
    st.text(max_size=20),
)


@settings(max_examples=60)
@given(files=st.dictionaries(st.sampled_from(FILES), TEXTS), phase=st.text(max_size=10))
def test_whatever_the_files_hold_a_line_is_json_and_nothing_breaks(files, phase):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, name).write_bytes(text.encode("utf-8", "surrogatepass"))
        line = json.loads(Sampler(None, folder, proc=folder, cgroup=folder).line(phase), parse_constant=pytest.fail)
        assert (oom_kills(folder) or 0) >= 0
        assert (memory_limit_mib(folder) or 1) >= 1
    assert all(value is None or value >= 0 for key, value in line.items() if key not in ("gpus", "phase"))


def test_the_real_machine_says_something():
    """Here control groups are of version 1 or 2, in a container or not."""
    line = json.loads(Sampler(None, "/").line("running"))
    assert line["ram_mib"] > 0
    assert line["ram_total_mib"] >= line["ram_mib"]
    assert line["disk_total_mib"] > 0


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
        ("other", "", None),
        ("memory.events", "oom_kill\noom_kill x\n", None),
        ("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", None),
    ],
)
def test_kills_for_memory_are_counted_in_both_versions(tmp_path, name, text, kills):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert oom_kills(str(tmp_path)) == kills


@pytest.mark.parametrize(
    ("name", "text", "limit"),
    [
        ("memory.max", "67108864\n", 64),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "67108864\n", 64),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
        ("memory.max", "1048575\n", None),
        ("other", "", None),
    ],
)
def test_the_memory_limit_is_read_in_both_versions(tmp_path, name, text, limit):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert memory_limit_mib(str(tmp_path)) == limit


def test_strings_are_json():
    assert json.loads(quoted('a "b" \\ \n é')) == 'a "b" \\ \n é'
