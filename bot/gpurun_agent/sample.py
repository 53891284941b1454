"""One line of metrics a second. What is not known is null, never 0."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpurun_agent.gpu import Gpus

_MIB = 1024 * 1024
_NO_LIMIT = 1 << 60
"""Control groups write a limit near 2**63 when there is none."""


class Sampler:
    """Reads the container's control groups (version 2 or 1), else the whole machine's figures."""

    def __init__(self, gpus: Gpus | None, disk: str, *, proc: str = "/proc", cgroup: str = "/sys/fs/cgroup") -> None:
        self._gpus = gpus
        self._disk = disk
        self._proc = proc
        self._cgroup = cgroup
        self._cores = _cores(cgroup)
        self._cpu = self._cpu_seconds()
        self._at = time.monotonic()

    def line(self, phase: str) -> bytes:
        """A JSON object and a line end."""
        used, total = self._memory()
        disk_used, disk_total = self._disk_space()
        received, sent = self._network()
        parts = [
            '"t": %.3f, "phase": %s' % (time.time(), quoted(phase)),
            '"cpu_pct": %s' % number(self._cpu_percent()),
            '"ram_mib": %s, "ram_total_mib": %s' % (number(used), number(total)),
            '"disk_mib": %s, "disk_total_mib": %s' % (number(disk_used), number(disk_total)),
            '"net_rx_bytes": %s, "net_tx_bytes": %s' % (number(received), number(sent)),
            '"gpus": [%s]' % ", ".join(gpu.json() for gpu in self._gpus.latest()) if self._gpus else '"gpus": []',
        ]
        return ("{" + ", ".join(parts) + "}\n").encode("ascii")

    def _cpu_percent(self) -> float | None:
        cpu, now = self._cpu_seconds(), time.monotonic()
        before, since = self._cpu, now - self._at
        self._cpu, self._at = cpu, now
        if cpu is None or before is None or since <= 0:
            return None
        return min(100.0, max(0.0, (cpu - before) / since / self._cores * 100))

    def _cpu_seconds(self) -> float | None:
        for line in _lines(self._cgroup + "/cpu.stat"):
            if line.startswith("usage_usec "):
                return int(line.split()[1]) / 1e6
        nanoseconds = _int(self._cgroup + "/cpuacct/cpuacct.usage")
        if nanoseconds is not None:
            return nanoseconds / 1e9
        for line in _lines(self._proc + "/stat"):
            if line.startswith("cpu "):
                user, nice, system, _, _, irq, softirq = (int(word) for word in line.split()[1:8])
                return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
        return None

    def _memory(self) -> tuple[float | None, float | None]:
        """Used without what the kernel could drop from its file cache, and the limit."""
        machine = {line.split(":")[0]: line.split()[1] for line in _lines(self._proc + "/meminfo") if ":" in line}
        total = int(machine["MemTotal"]) * 1024 if "MemTotal" in machine else None
        for usage, limit, stat, inactive in (
            ("memory.current", "memory.max", "memory.stat", "inactive_file"),
            (
                "memory/memory.usage_in_bytes",
                "memory/memory.limit_in_bytes",
                "memory/memory.stat",
                "total_inactive_file",
            ),
        ):
            used = _int("%s/%s" % (self._cgroup, usage))
            if used is None:
                continue
            for line in _lines("%s/%s" % (self._cgroup, stat)):
                if line.startswith(inactive + " "):
                    used = max(0, used - int(line.split()[1]))
            allowed = _int("%s/%s" % (self._cgroup, limit))
            if allowed is None or allowed >= _NO_LIMIT or (total is not None and allowed > total):
                allowed = total
            return used / _MIB, allowed / _MIB if allowed is not None else None
        if total is None or "MemAvailable" not in machine:
            return None, None
        return (total - int(machine["MemAvailable"]) * 1024) / _MIB, total / _MIB

    def _disk_space(self) -> tuple[float | None, float | None]:
        try:
            disk = os.statvfs(self._disk)
        except OSError:
            return None, None
        total = disk.f_blocks * disk.f_frsize
        return (total - disk.f_bavail * disk.f_frsize) / _MIB, total / _MIB

    def _network(self) -> tuple[int | None, int | None]:
        received = sent = 0
        lines = _lines(self._proc + "/net/dev")
        for line in lines[2:]:
            name, _, counters = line.partition(":")
            words = counters.split()
            if name.strip() != "lo" and len(words) > 8:
                received += int(words[0])
                sent += int(words[8])
        return (received, sent) if len(lines) > 1 else (None, None)


def number(value: float | None) -> str:
    """JSON of a number."""
    if value is None:
        return "null"
    return "%d" % value if value == int(value) else "%.1f" % value


def quoted(text: str) -> str:
    """JSON of a string."""
    return '"%s"' % "".join(
        char if " " <= char <= "~" and char not in '"\\' else "\\u%04x" % min(ord(char), 0xFFFD) for char in text
    )


def _cores(cgroup: str) -> float:
    """Cores that the container may use."""
    available = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    words = " ".join(_lines(cgroup + "/cpu.max")).split()
    if len(words) == 2 and words[0].isdigit():
        return min(available, int(words[0]) / int(words[1]))
    quota, period = _int(cgroup + "/cpu/cpu.cfs_quota_us"), _int(cgroup + "/cpu/cpu.cfs_period_us")
    if quota is not None and period and quota > 0:
        return min(available, quota / period)
    return available


def _lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _int(path: str) -> int | None:
    lines = _lines(path)
    try:
        return int(lines[0]) if lines else None
    except ValueError:
        return None
