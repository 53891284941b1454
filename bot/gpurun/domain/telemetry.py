"""What the metrics of an attempt say, and what it costs. Unknown is None, never zero."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One measured quantity over an attempt; made only when there was at least one value."""

    latest: float
    low: float
    mean: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSummary:
    """One GPU."""

    index: int
    util_pct: Series | None = None
    util_p50_pct: int | None = None
    util_p95_pct: int | None = None
    vram_mib: Series | None = None
    vram_total_mib: float | None = None
    power_w: Series | None = None
    temp_c: Series | None = None
    sm_mhz: Series | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The metrics stream in a few numbers. All of it is the agent's claim."""

    samples: int
    broken_lines: int
    """Lines that are no JSON object; they count nowhere else."""
    duration_s: float | None
    """Time between the samples by the instance's clock, its jumps left out; None below two samples."""
    cpu_pct: Series | None
    """Of all cores together."""
    ram_mib: Series | None
    ram_total_mib: float | None
    disk_mib: Series | None
    net_rx_bytes: float | None
    """The last value: counters of the instance."""
    net_tx_bytes: float | None
    gpus: tuple[GpuSummary, ...]
    """By index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an attempt costs so far by our clock."""

    elapsed: timedelta
    usd_per_hour_micro: int
    usd_micro: int
    declared: bool
    """True when the price is the operator's word and no provider's bill."""
