"""A registry that asks for a login."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.local_services import Missing, Registry, free_port
from tests.services.engine import missing


@contextmanager
def private_registry(folder: Path, password: str) -> Iterator[Registry]:
    """Over `<folder>/storage`, for the user `ci`. Without its programs the test is skipped."""
    if shutil.which("htpasswd") is None:
        missing("htpasswd is not installed: `make setup` as root installs it (apache2-utils)")
    users = subprocess.run(["htpasswd", "-Bbn", "ci", password], capture_output=True, check=True, timeout=10).stdout
    (folder / "htpasswd").write_bytes(users)
    registry = Registry(folder / "storage", free_port(), htpasswd=folder / "htpasswd")
    try:
        registry.start()
    except Missing as exc:
        missing(str(exc))
    try:
        yield registry
    finally:
        registry.stop()
