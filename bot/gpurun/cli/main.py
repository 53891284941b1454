"""The `gpurun` command."""

from __future__ import annotations


def main() -> None:
    """Entry point."""
    raise SystemExit("not yet")
