"""The metrics stream as a `Summary`, fed in any pieces, in memory that does not grow with the stream.

The lines come from the instance, where a job can write what it likes: every value is checked before it counts.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field

from gpurun.domain.telemetry import GpuSummary, Series, Summary

MAX_LINE_BYTES = 1024 * 1024
"""A thousand GPUs are about 130 KiB."""
MAX_GPUS = 1024
MAX_VALUE = 1e15
MAX_STEP_S = 60.0
"""A longer step between two samples is a jump of the clock."""


def summarise(data: bytes) -> Summary:
    """Of a whole stream."""
    summariser = Summariser()
    summariser.feed(data)
    return summariser.summary()


class Summariser:
    """Takes the stream in pieces of any size; `summary` may be asked at any time."""

    def __init__(self) -> None:
        self._partial = b""
        self._skipping = False
        """Inside a line that is longer than any honest one."""
        self._samples = 0
        self._broken = 0
        self._last_t: float | None = None
        self._duration_s: float | None = None
        self._values = _Values()
        self._gpus: dict[int, _Gpu] = {}

    def feed(self, data: bytes) -> None:
        """The next bytes of the stream."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
            else:
                self._line(line)
        if len(self._partial) > MAX_LINE_BYTES:
            self._broken += not self._skipping
            self._skipping, self._partial = True, b""

    def summary(self) -> Summary:
        """Of all whole lines so far."""
        values = self._values
        return Summary(
            samples=self._samples,
            broken_lines=self._broken,
            duration_s=self._duration_s,
            cpu_pct=values.series("cpu_pct"),
            ram_mib=values.series("ram_mib"),
            ram_total_mib=values.latest("ram_total_mib"),
            disk_mib=values.series("disk_mib"),
            net_rx_bytes=values.latest("net_rx_bytes"),
            net_tx_bytes=values.latest("net_tx_bytes"),
            gpus=tuple(gpu.summary(index) for index, gpu in sorted(self._gpus.items())),
        )

    def _line(self, line: bytes) -> None:
        if not line.strip():
            return
        sample = _object(line)
        if sample is None:
            self._broken += 1
            return
        self._samples += 1
        self._tick(_number(sample.get("t"), high=MAX_VALUE))
        self._values.add(sample, "cpu_pct", high=100.0)
        for name in ("ram_mib", "ram_total_mib", "disk_mib", "net_rx_bytes", "net_tx_bytes"):
            self._values.add(sample, name)
        gpus = sample.get("gpus")
        if isinstance(gpus, list):
            for position, gpu in enumerate(gpus[:MAX_GPUS]):
                self._gpu(position, gpu)

    def _tick(self, t: float | None) -> None:
        if t is None:
            return
        if self._last_t is not None:
            step = t - self._last_t
            self._duration_s = (self._duration_s or 0.0) + (step if 0 < step <= MAX_STEP_S else 0.0)
        self._last_t = t

    def _gpu(self, position: int, sample: object) -> None:
        if not isinstance(sample, dict):
            return
        index = sample.get("index")
        if type(index) is not int or not 0 <= index < MAX_GPUS:
            index = position
        self._gpus.setdefault(index, _Gpu()).add(sample)


class _Gpu:
    def __init__(self) -> None:
        self._values = _Values()
        self._util: Counter[int] = Counter()
        """Samples by whole percent: enough for percentiles."""

    def add(self, sample: dict[str, object]) -> None:
        util = self._values.add(sample, "util_pct", high=100.0)
        if util is not None:
            self._util[round(util)] += 1
        for name in ("vram_mib", "vram_total_mib", "power_w", "sm_mhz"):
            self._values.add(sample, name)
        self._values.add(sample, "temp_c", low=-100.0, high=1000.0)

    def summary(self, index: int) -> GpuSummary:
        values = self._values
        return GpuSummary(
            index=index,
            util_pct=values.series("util_pct"),
            util_p50_pct=_percentile(self._util, 50),
            util_p95_pct=_percentile(self._util, 95),
            vram_mib=values.series("vram_mib"),
            vram_total_mib=values.latest("vram_total_mib"),
            power_w=values.series("power_w"),
            temp_c=values.series("temp_c"),
            sm_mhz=values.series("sm_mhz"),
        )


@dataclass(slots=True)
class _Running:
    latest: float
    low: float
    high: float
    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.latest = value
        self.low = min(self.low, value)
        self.high = max(self.high, value)
        self.total += value
        self.count += 1


@dataclass(slots=True)
class _Values:
    """Named quantities, each with its running figures."""

    _by_name: dict[str, _Running] = field(default_factory=dict)

    def add(self, sample: dict[str, object], name: str, *, low: float = 0.0, high: float = MAX_VALUE) -> float | None:
        value = _number(sample.get(name), low=low, high=high)
        if value is not None:
            self._by_name.setdefault(name, _Running(value, value, value)).add(value)
        return value

    def latest(self, name: str) -> float | None:
        running = self._by_name.get(name)
        return running.latest if running else None

    def series(self, name: str) -> Series | None:
        running = self._by_name.get(name)
        if running is None:
            return None
        # Rounding of the sum must not put the mean outside of its values.
        mean = min(max(running.total / running.count, running.low), running.high)
        return Series(latest=running.latest, low=running.low, mean=mean, high=running.high)


def _object(line: bytes) -> dict[str, object] | None:
    if len(line) > MAX_LINE_BYTES:
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _number(value: object, *, low: float = 0.0, high: float) -> float | None:
    """None for what is no finite number between `low` and `high`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not low <= value <= high or not math.isfinite(value):
        return None
    return float(value)


def _percentile(counts: Counter[int], percent: int) -> int | None:
    """Nearest rank."""
    rank = math.ceil(counts.total() * percent / 100)
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= rank:
            return value
    return None
