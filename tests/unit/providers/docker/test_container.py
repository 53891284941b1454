from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gpurun.domain.offer import InstanceState
from gpurun.domain.plan import Resources
from gpurun.providers.docker.container import Host, Limits, fits, lacks, limits_for, owned_from_inspect, owned_from_list

HOST = Host(cpus=8, memory_mib=64_000, gpus=False)


def test_what_was_asked_for_is_given():
    assert limits_for(Resources(cpus=2.5, memory_mib=900, shm_mib=100), HOST, max_runs=4) == Limits(2.5, 900, 100)


def test_what_was_not_asked_for_is_an_equal_share_of_memory_half_of_it_shared_and_all_cpus():
    assert limits_for(Resources(), HOST, max_runs=4) == Limits(0, 14_400, 7_200)


@pytest.mark.parametrize(
    ("needs", "answer"),
    [
        (Resources(), True),
        (Resources(cpus=8, memory_mib=64_000), True),
        (Resources(cpus=8.5), False),
        (Resources(memory_mib=64_001), False),
        (Resources(gpus=1), False),
    ],
)
def test_fits(needs, answer):
    assert fits(needs, HOST) is answer


@pytest.mark.parametrize(
    ("needs", "missing"),
    [
        (Resources(gpus=1), "1 GPU (it has no NVIDIA container runtime)"),
        (Resources(gpus=2, cpus=8.5), "2 GPUs (it has no NVIDIA container runtime), 8.5 CPUs (it has 8)"),
        (Resources(memory_mib=512 * 1024), "512GB of memory (it has 62.5GB)"),
        (Resources(memory_mib=64_001), "64001MB of memory (it has 62.5GB)"),
    ],
)
def test_what_is_missing_is_said_in_words(needs, missing):
    assert lacks(needs, HOST) == f"The Docker Engine's machine does not have what the job asks for: {missing}."


@pytest.mark.parametrize(("disk_mib", "missing"), [(1023, True), (1024, False), (0, False)])
def test_a_disk_that_can_be_seen_and_is_smaller_is_missing(disk_mib, missing):
    host = Host(cpus=8, memory_mib=64_000, gpus=False, disk_mib=disk_mib)
    assert ("1GB of disk (it has 1023MB)" in lacks(Resources(disk_mib=1024), host)) is missing


def test_nothing_is_missing_when_it_fits():
    assert lacks(Resources(cpus=8, memory_mib=64_000), HOST) == ""


@pytest.mark.parametrize(("memory_mib", "shown"), [(900, "900MB"), (1024, "1GB"), (15_974, "15.5GB")])
def test_the_machines_memory_is_shown_rounded_down(memory_mib, shown):
    assert f"(it has {shown})" in lacks(Resources(memory_mib=10**6), Host(cpus=1, memory_mib=memory_mib, gpus=False))


@pytest.mark.parametrize(
    ("state", "status", "expected", "code"),
    [
        ("created", "Created", InstanceState.BOOTING, None),
        ("running", "Up 3 minutes", InstanceState.RUNNING, None),
        ("paused", "Up 3 minutes (Paused)", InstanceState.RUNNING, None),
        ("exited", "Exited (137) 2 seconds ago", InstanceState.EXITED, 137),
        ("dead", "Dead", InstanceState.ERROR, None),
        ("removing", "Removal In Progress", InstanceState.UNKNOWN, None),
        ("something-new", "?", InstanceState.UNKNOWN, None),
    ],
)
def test_an_entry_of_the_list(state, status, expected, code):
    item = {"Id": "abc", "Names": ["/gpurun-x"], "State": state, "Status": status, "Created": 1767614400}
    owned = owned_from_list(item)
    assert (owned.ref, owned.name, owned.state, owned.exit_code) == ("abc", "gpurun-x", expected, code)
    assert owned.created_at == datetime(2026, 1, 5, 12, tzinfo=UTC)


def _inspected(**state):
    state = {"Status": "running", "ExitCode": 0, "Error": "", "OOMKilled": False, **state}
    return {"Id": "abc", "Name": "/gpurun-x", "Created": "2026-01-05T12:00:00.123456789Z", "State": state}


def test_a_running_container_has_no_exit_code():
    owned = owned_from_inspect(_inspected())
    assert (owned.state, owned.exit_code, owned.detail) == (InstanceState.RUNNING, None, "running")
    assert owned.created_at == datetime(2026, 1, 5, 12, 0, 0, 123456, tzinfo=UTC)


def test_one_that_could_not_be_started_is_an_error_with_the_engines_words():
    owned = owned_from_inspect(_inspected(Status="created", ExitCode=127, Error="exec: no such file"))
    assert (owned.state, owned.detail) == (InstanceState.ERROR, "exec: no such file")


def test_a_kill_for_memory_is_a_detail_and_no_verdict():
    owned = owned_from_inspect(_inspected(Status="exited", ExitCode=3, OOMKilled=True))
    assert (owned.state, owned.exit_code) == (InstanceState.EXITED, 3)
    assert owned.detail == "a process was killed for memory"
