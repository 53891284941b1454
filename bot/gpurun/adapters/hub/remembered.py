"""What the hub last said of a repository at a commit, for a time in which it says nothing.

A commit never changes its files, so this stays true; only whether the bot may read them may have changed since.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from gpurun.domain.plan import ModelFile, ModelPin, ModelSpec
from gpurun.ports.bytes import SaidBefore


def remember(repo: Path, spec: ModelSpec, pin: ModelPin, now: datetime) -> None:
    """In the cache's folder of the repository. Raises OSError."""
    path = _path(repo, spec)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".new-{path.name}-{secrets.token_hex(4)}")
    files = [asdict(file) for file in pin.files]
    draft.write_text(json.dumps({"on": now.date().isoformat(), "files": files}), "utf-8")
    draft.rename(path)


def recall(repo: Path, spec: ModelSpec) -> SaidBefore | None:
    """None when it never said anything, or what is kept of it cannot be read."""
    try:
        said: Mapping[str, Any] = json.loads(_path(repo, spec).read_text("utf-8"))
        files = tuple(ModelFile(**file) for file in said["files"])
        return SaidBefore(pin=spec.with_files(files), on=str(said["on"])) if files else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _path(repo: Path, spec: ModelSpec) -> Path:
    asked = json.dumps([spec.kind, spec.id, spec.revision, spec.include, spec.exclude])
    return repo / "resolved" / f"{hashlib.sha256(asked.encode()).hexdigest()[:32]}.json"
