"""Measure a subject beside its anchor, so that a noisy machine disturbs both alike."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of `results/NAME.json`."""

    name: str
    ratio: float
    """Subject ÷ anchor, median of the rounds; without an anchor measured ÷ bound."""
    goal: float
    holds: bool
    load: float
    """Load average of the last minute when it ended."""


def seconds(act: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def compare(
    name: str,
    *,
    subject: Callable[[], float],
    anchor: Callable[[], float],
    goal: float,
    rounds: int = 15,
) -> Figure:
    """Runs anchor and subject in turn; each returns its own seconds. One round of each is thrown away first."""
    subject(), anchor()
    ratios, subjects, anchors = [], [], []
    for round_number in range(rounds):
        first, second = (anchor, subject) if round_number % 2 else (subject, anchor)
        times = {first: first(), second: second()}
        subjects.append(times[subject])
        anchors.append(times[anchor])
        ratios.append(times[subject] / times[anchor])
    ratio = statistics.median(ratios)
    print(
        f"{name}: {ratio:.2f}x (goal <= {goal:g}x)  "
        f"subject {statistics.median(subjects) * 1000:.0f} ms, anchor {statistics.median(anchors) * 1000:.0f} ms, "
        f"ratios {min(ratios):.2f}..{max(ratios):.2f} over {rounds} rounds"
    )
    return Figure(name, round(ratio, 3), goal, ratio <= goal, os.getloadavg()[0])


def bound(name: str, measured: float, most: float) -> Figure:
    """A figure without an anchor: its ratio is measured ÷ `most`."""
    print(f"{name}: {measured:.3g} (goal <= {most:g})")
    return Figure(name, round(measured / most, 3), 1.0, measured <= most, os.getloadavg()[0])


def at_least(name: str, measured: float, least: float) -> Figure:
    """A figure without an anchor of which more is better: its ratio is `least` ÷ measured."""
    print(f"{name}: {measured:.3g} (goal >= {least:g})")
    return Figure(name, round(least / measured, 3), 1.0, measured >= least, os.getloadavg()[0])


def write(name: str, figures: list[Figure]) -> None:
    """`bench/results/NAME.json`."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps([asdict(f) for f in figures], indent=2) + "\n")
