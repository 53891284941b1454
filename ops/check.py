"""`make check`: what can be said without running the product. Runs all of it, prints the time of each."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
TIMEOUT_S = 600
CHECKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("lint", ("ruff", "check", ".")),
    ("format", ("ruff", "format", "--check", ".")),
    ("imports", ("lint-imports", "--no-logo")),
    ("lock", ("python", "-m", "ops.check_lock")),
    ("docs", ("python", "-m", "ops.check_docs")),
    ("types", ("mypy",)),
)


def main() -> int:
    """0 when all hold."""
    failed = [name for name, argv in CHECKS if not holds(name, argv)]
    print(f"check: {', '.join(failed)} failed" if failed else "check: all hold", flush=True)
    return int(bool(failed))


def holds(name: str, argv: tuple[str, ...]) -> bool:
    """Prints the output of a check that failed."""
    began = time.monotonic()
    done = subprocess.run(
        [BIN / argv[0], *argv[1:]], cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    good = done.returncode == 0
    if not good:
        print(done.stdout[-20_000:], done.stderr[-20_000:], sep="\n")
    print(f"check: {name:<8} {'ok' if good else 'FAILED':<6} {time.monotonic() - began:6.1f} s", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
