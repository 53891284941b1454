from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.telemetry import Series
from gpurun.telemetry.summarise import MAX_LINE_BYTES, Summariser, summarise
from gpurun_agent.gpu import parse
from gpurun_agent.sample import Sampler


def lines(*samples: object) -> bytes:
    return b"".join(json.dumps(sample).encode() + b"\n" for sample in samples)


def test_an_ordinary_run():
    data = lines(
        {"t": 100.0, "cpu_pct": 10, "ram_mib": 500, "ram_total_mib": 16000, "net_rx_bytes": 5,
         "gpus": [{"index": 0, "util_pct": 0, "vram_mib": 100, "vram_total_mib": 24564, "power_w": 30.5}]},
        {"t": 101.0, "cpu_pct": 30, "ram_mib": 700, "ram_total_mib": 16000, "net_rx_bytes": 9,
         "gpus": [{"index": 0, "util_pct": 98, "vram_mib": 20000, "vram_total_mib": 24564, "power_w": 300.5,
                   "temp_c": 70, "sm_mhz": 2520}]},
    )  # fmt: skip
    found = summarise(data)
    assert found.samples == 2
    assert found.duration_s == 1.0
    assert found.cpu_pct == Series(latest=30, low=10, mean=20, high=30)
    assert found.ram_mib is not None
    assert found.ram_mib.high == 700
    assert found.net_rx_bytes == 9
    assert found.net_tx_bytes is None
    (gpu,) = found.gpus
    assert gpu.util_pct == Series(latest=98, low=0, mean=49, high=98)
    assert (gpu.util_p50_pct, gpu.util_p95_pct) == (0, 98)
    assert gpu.vram_total_mib == 24564
    assert gpu.sm_mhz == Series(latest=2520, low=2520, mean=2520, high=2520)


def test_missing_is_none_and_never_zero():
    found = summarise(lines({"t": 1, "cpu_pct": None, "gpus": [{"index": 0, "util_pct": None}]}))
    assert found.cpu_pct is None
    assert found.ram_mib is None
    assert found.duration_s is None
    assert found.gpus[0].util_pct is None
    assert found.gpus[0].util_p95_pct is None


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e400", "-1", "true", '"5"', "[]", "{}", "1" * 5000]
)
def test_a_value_that_cannot_be_is_no_value(value):
    found = summarise(b'{"cpu_pct": ' + value.encode() + b', "ram_mib": 5}\n')
    assert found.cpu_pct is None


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"null", b"\xff\xfe", b'{"t": 1} extra', b"[" * 100_000, b"x" * (MAX_LINE_BYTES + 1)]
)
def test_a_broken_line_is_counted_and_the_others_stay(line):
    found = summarise(lines({"cpu_pct": 1}) + line + b"\n" + lines({"cpu_pct": 3}))
    assert (found.samples, found.broken_lines) == (2, 1)
    assert found.cpu_pct == Series(latest=3, low=1, mean=2, high=3)


@pytest.mark.parametrize("gpus", [5, {"index": 0}, [None, 3, "x"], None])
def test_gpus_of_another_shape_are_none(gpus):
    found = summarise(lines({"gpus": gpus}))
    assert (found.samples, found.gpus) == (1, ())


def test_a_thousand_gpus():
    sample = {"gpus": [{"index": n, "util_pct": n % 101} for n in range(1000)]}
    found = summarise(lines(sample))
    assert len(found.gpus) == 1000
    assert found.gpus[999].util_pct is not None
    assert found.gpus[999].util_pct.latest == 999 % 101


def test_more_gpus_than_can_be_are_left_out():
    assert len(summarise(lines({"gpus": [{"util_pct": 1}] * 5000})).gpus) == 1024


def test_jumps_of_the_clock_do_not_count_as_time():
    found = summarise(lines({"t": 1000}, {"t": 1001}, {"t": 5000}, {"t": 5001}, {"t": 1400}, {"t": 1401.5}))
    assert found.duration_s == 3.5


@given(
    st.lists(st.sampled_from([b'{"cpu_pct": 5}', b"\n", b'{"t": 2}', b"broken", b"{}", b" "]), max_size=20), st.data()
)
def test_pieces_give_the_same_as_the_whole(parts, data):
    stream = b"".join(parts)
    cut = data.draw(st.integers(0, len(stream)))
    summariser = Summariser()
    summariser.feed(stream[:cut])
    summariser.feed(stream[cut:])
    assert summariser.summary() == summarise(stream)


def test_memory_stays_small_inside_an_endless_line():
    summariser = Summariser()
    for _ in range(5):
        summariser.feed(b"x" * MAX_LINE_BYTES)
    summariser.feed(b"\n" + lines({"cpu_pct": 1}))
    found = summariser.summary()
    assert (found.samples, found.broken_lines) == (1, 1)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_mean_and_percentiles_lie_between_low_and_high(values):
    found = summarise(lines(*({"gpus": [{"index": 0, "util_pct": value}]} for value in values)))
    gpu = found.gpus[0]
    assert gpu.util_pct is not None
    assert gpu.util_pct.low <= gpu.util_pct.mean <= gpu.util_pct.high
    assert gpu.util_p50_pct is not None
    assert gpu.util_p95_pct is not None
    assert round(gpu.util_pct.low) <= gpu.util_p50_pct <= gpu.util_p95_pct <= round(gpu.util_pct.high)


@pytest.mark.parametrize("skew_s", [3600, -3600, 60.5, -0.5])
def test_a_clock_that_is_set_makes_and_costs_no_time(skew_s):
    found = summarise(lines(*({"t": t} for t in (9000, 9001, 9002 + skew_s, 9003 + skew_s))))
    assert found.duration_s == pytest.approx(2.0 if abs(skew_s) > 1 else 2.5)


class ThousandGpus:
    """What the agent's sampler asks for; every third says nothing of its use, as with MIG."""

    def latest(self):
        rows = (f"{n}, GPU-{n}, NVIDIA H200, {n % 101 if n % 3 else '[N/A]'}, 1, 2, 3, 4, 5" for n in range(1000))
        return parse("\n".join(rows) + "\n")


def test_lines_of_the_agent_with_a_thousand_gpus(tmp_path):
    missing = str(tmp_path / "missing")
    sampler = Sampler(ThousandGpus(), missing, proc=missing, cgroup=missing)
    found = summarise(sampler.line("running") + sampler.line("running"))
    assert (found.samples, found.broken_lines, len(found.gpus)) == (2, 0, 1000)
    assert (found.cpu_pct, found.ram_mib, found.net_rx_bytes) == (None, None, None)
    assert found.gpus[3].util_pct is None
    assert found.gpus[4].util_pct == Series(latest=4, low=4, mean=4, high=4)
    assert found.gpus[999].vram_total_mib == 2
