"""Streams of an attempt: append-only bytes with exactly-once appends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class StreamName(StrEnum):
    """The two streams."""

    LOG = "log"
    METRICS = "metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnd:
    """Where a stream ends."""

    next: int
    """Offset of the next byte."""
    durable: int
    """Bytes below this survive a power cut; the agent may forget them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A collected file."""

    path: str
    size: int
    sha256: str
    blob: str
    """Key in the blob store."""
