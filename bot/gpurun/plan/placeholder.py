"""The command that `gpurun init` writes where it found none."""

from __future__ import annotations

PLACEHOLDER = 'echo "Write the command of this job in .gpurun.yml."; exit 1'
"""Fails, and says what to do."""
