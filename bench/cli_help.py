"""`gpurun --help` against `python -c pass`: what a person waits for before anything happens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.harness import Figure, compare, seconds

GOAL = 7.0


def main() -> list[Figure]:
    """One figure."""
    gpurun = str(Path(sys.executable).with_name("gpurun"))
    return [
        compare(
            "gpurun --help vs python -c pass",
            subject=lambda: seconds(lambda: run([gpurun, "--help"])),
            anchor=lambda: seconds(lambda: run([sys.executable, "-c", "pass"])),
            goal=GOAL,
            rounds=25,
        )
    ]


def run(argv: list[str]) -> None:
    """Output thrown away, a failure is an error."""
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
