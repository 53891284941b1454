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
        # A counter that goes back was set anew, and says nothing about the time before.
        if cpu is None or before is None or since <= 0 or cpu < before:
            return None
        return min(100.0, (cpu - before) / since / self._cores * 100)

    def _cpu_seconds(self) -> float | None:
        microseconds = _field(self._cgroup + "/cpu.stat", "usage_usec")
        if microseconds is not None:
            return microseconds / 1e6
        nanoseconds = _int(self._cgroup + "/cpuacct/cpuacct.usage")
        if nanoseconds is not None:
            return nanoseconds / 1e9
        for line in _lines(self._proc + "/stat"):
            if line.startswith("cpu "):
                user, nice, system, _, _, irq, softirq = (line.split()[1:8] + [""] * 7)[:7]
                busy = [_whole(word) for word in (user, nice, system, irq, softirq)]
                known = [ticks for ticks in busy if ticks is not None]
                return sum(known) / os.sysconf("SC_CLK_TCK") if len(known) == len(busy) else None
        return None

    def _memory(self) -> tuple[float | None, float | None]:
        """Used without what the kernel could drop from its file cache, and the limit."""
        meminfo = self._proc + "/meminfo"
        total, available = _kib(_field(meminfo, "MemTotal:")), _kib(_field(meminfo, "MemAvailable:"))
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
            used = max(0, used - (_field("%s/%s" % (self._cgroup, stat), inactive) or 0))
            allowed = _int("%s/%s" % (self._cgroup, limit))
            if allowed is None or allowed >= _NO_LIMIT or (total is not None and allowed > total):
                allowed = total
            return used / _MIB, allowed / _MIB if allowed is not None else None
        if total is None or available is None:
            return None, None
        return max(0, total - available) / _MIB, total / _MIB

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
                in_bytes, out_bytes = _whole(words[0]), _whole(words[8])
                if in_bytes is None or out_bytes is None:
                    return None, None
                received += in_bytes
                sent += out_bytes
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
    limit, _, every = " ".join(_lines(cgroup + "/cpu.max")).partition(" ")
    quota, period = _whole(limit), _whole(every.strip())
    if quota is None or period is None:
        quota, period = _int(cgroup + "/cpu/cpu.cfs_quota_us"), _int(cgroup + "/cpu/cpu.cfs_period_us")
    return min(available, quota / period) if quota and period else available


def _lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _int(path: str) -> int | None:
    lines = _lines(path)
    return _whole(lines[0].strip()) if lines else None


def _field(path: str, name: str) -> int | None:
    """The number behind a name, as the kernel's flat files have it."""
    for line in _lines(path):
        words = line.split()
        if len(words) > 1 and words[0] == name:
            return _whole(words[1])
    return None


def _kib(value: int | None) -> int | None:
    """In bytes."""
    return None if value is None else value * 1024


def _whole(word: str) -> int | None:
    """None for `max`, for a negative number and for what no counter of the kernel holds."""
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 20 else None
