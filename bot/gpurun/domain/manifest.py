"""The manifest of an attempt's artifacts: path, size and sha256 of each, and the digest of all of that.

It is made of the rows, so it stays when the bytes are gone. The same files give the same text, byte for byte:

    {"gpurun_artifacts": 1}
    {"path": "out/metrics.json", "size": 214, "sha256": "e3b0…"}
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpurun.domain.errors import UserError
from gpurun.domain.stream import Artifact

FORMAT = 1
MAX_PATH = 512
"""Bytes."""
_NO_SIZE = 2**63
"""More than a file can have."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file."""

    path: str
    size: int
    sha256: str


def write_manifest(artifacts: Iterable[Artifact]) -> str:
    """The text, in the order of the paths' bytes."""
    rows = sorted(artifacts, key=lambda artifact: artifact.path.encode())
    lines: list[dict[str, object]] = [{"gpurun_artifacts": FORMAT}]
    lines += [{"path": row.path, "size": row.size, "sha256": row.sha256} for row in rows]
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)


def manifest_digest(artifacts: Iterable[Artifact]) -> str:
    """`sha256:…` of the text; empty without artifacts."""
    rows = tuple(artifacts)
    return digest_of(write_manifest(rows).encode()) if rows else ""


def digest_of(manifest: bytes) -> str:
    """`sha256:…`."""
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


def read_manifest(text: str) -> tuple[Entry, ...]:
    """Its files. Raises UserError when it is none, or when a path would lead out of a folder."""
    try:
        head, *lines = [json.loads(line) for line in text.splitlines()]
        known = head == {"gpurun_artifacts": FORMAT}
        entries = tuple(_entry(line) for line in lines)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError("What came is no list of artifacts.", hint="Is this the address of a run's page?") from error
    if not known:
        raise UserError("This list of artifacts is of another version of gpurun.", hint="Update gpurun.")
    return entries


def is_plain_path(text: str) -> bool:
    """Relative, inside its folder whoever opens it, printable, and at most MAX_PATH bytes."""
    parts = text.split("/")
    inside = len(text.encode("utf-8", "replace")) <= MAX_PATH and not any(part in {"", ".", ".."} for part in parts)
    return inside and text.isprintable() and "\\" not in text


def _entry(line: dict[str, object]) -> Entry:
    path, size, sha256 = line["path"], line["size"], line["sha256"]
    if not (isinstance(path, str) and type(size) is int and 0 <= size < _NO_SIZE and isinstance(sha256, str)):
        raise ValueError("no entry")
    if not _SHA256.fullmatch(sha256) or not is_plain_path(path):
        raise ValueError("no entry that is taken")
    return Entry(path=path, size=size, sha256=sha256)
