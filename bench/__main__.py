"""`python -m bench [NAME…]`: all benches, or the named ones. Exit 1 when a goal is missed."""

from __future__ import annotations

import importlib
import sys

from bench import harness

NAMES = (
    "cli_help",
    "local_run",
    "accept",
    "first_step",
    "mask",
    "live_log",
    "live_runs",
    "config_file",
    "weights",
    "cache",
    "source",
)


def main() -> int:
    """Runs and writes each."""
    missed = False
    for name in sys.argv[1:] or NAMES:
        if name not in NAMES:
            print(f"no bench {name!r}; there are: {', '.join(NAMES)}", file=sys.stderr)
            return 2
        figures = importlib.import_module(f"bench.{name}").main()
        harness.write(name, figures)
        missed = missed or not all(figure.holds for figure in figures)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
