"""`.gpurun.yml`: how long a person waits for `gpurun validate`, and what a hostile file costs the server."""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

from bench.harness import Figure, bound, compare, seconds
from gpurun.plan.load import check, explain
from tests.hostile_files import FILES, IMAGE

VALIDATE_GOAL = 12.0
HOSTILE_MS = 50.0
HOSTILE_MB = 10.0
ROUNDS = 7

JOB = f"""\
  job#:
    image: {IMAGE}
    setup: pip install -e .
    run: python -m app.smoke --seed 0
    env:
      SEED: "0"
      LR: 1e-4
    resources: {{gpu: "24GB..80GB:1", memory: 32GB}}
    artifacts:
      - "out/**"
"""


def main() -> list[Figure]:
    """Three figures."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / ".gpurun.yml"
        file.write_text(five_hundred_lines())
        validate = [str(Path(sys.executable).with_name("gpurun")), "validate", str(file)]
        whole = compare(
            "gpurun validate of 500 lines vs python -c pass",
            subject=lambda: seconds(lambda: run(validate)),
            anchor=lambda: seconds(lambda: run([sys.executable, "-c", "pass"])),
            goal=VALIDATE_GOAL,
            rounds=25,
        )
    slowest = max(FILES, key=cpu_ms)
    largest = max(FILES, key=peak_mb)
    return [
        whole,
        bound(f"CPU ms of the worst hostile file ({slowest})", cpu_ms(slowest), HOSTILE_MS),
        bound(f"peak MB of the worst hostile file ({largest})", peak_mb(largest), HOSTILE_MB),
    ]


def five_hundred_lines() -> str:
    """A file that is fine."""
    text = "version: 1\njobs:\n" + "".join(JOB.replace("#", str(number)) for number in range(50))
    return text.removesuffix("\n")


def cpu_ms(name: str) -> float:
    """From bytes to the sentences that a person reads; the least of the rounds, for others use the machine too."""

    def once() -> float:
        start = time.process_time()
        tell(name)
        return (time.process_time() - start) * 1000

    gc.collect()
    return min(once() for _ in range(ROUNDS))


def peak_mb(name: str) -> float:
    """Python's memory while it is read and told, above what was there."""
    tracemalloc.start()
    tell(name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1024 / 1024


def tell(name: str) -> None:
    """What `gpurun validate` does with the file."""
    file = FILES[name].encode()
    faults = check(file)
    assert isinstance(faults, tuple)
    for fault in faults:
        explain(fault, file)


def run(argv: list[str]) -> None:
    """Output thrown away, a failure is an error."""
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
