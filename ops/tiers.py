"""A pytest plugin (`-p ops.tiers`): the time and the tests of each tier, before pytest's own last line."""

from __future__ import annotations

from collections import defaultdict
from typing import Any


class _Tiers:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.outcomes: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Set-up counts for the tier that caused it."""
        tier = tier_of(report.nodeid)
        self.seconds[tier] += report.duration
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[tier][report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """One line per tier."""
        terminalreporter.section("time per tier")
        for tier in sorted(self.seconds):
            counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes[tier].items()))
            terminalreporter.write_line(f"{tier:<10} {self.seconds[tier]:7.1f} s  {counts}")


def tier_of(nodeid: str) -> str:
    """`unit` for `tests/unit/run/test_x.py::test_y`; `house` for files right under `tests/`."""
    parts = nodeid.split("::", 1)[0].split("/")
    return parts[1] if len(parts) > 2 else "house"


def pytest_configure(config: Any) -> None:
    """Hooks itself in."""
    config.pluginmanager.register(_Tiers(), "gpurun-tiers")
