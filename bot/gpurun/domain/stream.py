"""Streams of an attempt: append-only bytes with exactly-once appends."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class StreamName(StrEnum):
    """LOG and METRICS are the agent's. BUILD is the bot's, and is whole before the agent exists: it and then LOG are
    the log of an attempt.
    """

    LOG = "log"
    METRICS = "metrics"
    BUILD = "build"


OF_AGENTS = (StreamName.LOG, StreamName.METRICS)
"""To which an agent may append."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnd:
    """Where a stream ends."""

    next: int
    """Offset of the next byte."""
    durable: int
    """Bytes below this survive a power cut; the agent may forget them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Bytes that an agent appends to a stream of its attempt."""

    attempt_id: str
    token_sha256: str
    """Hash of the run token that the agent showed."""
    name: StreamName
    offset: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of a piece, and what its agent must know."""

    took: bool
    """False: the stream does not end at the piece's offset."""
    end: StreamEnd
    stop: bool
    """The agent was told to stop."""
    hard_deadline: datetime


MIB = 1024 * 1024
INSTALLED = "gpurun/installed.txt"
"""The path of what was installed when `run` began, among the artifacts. As `gpurun_agent.protocol` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactLimits:
    """What is kept of one attempt."""

    files: int = 1000
    file_bytes: int = 1024 * MIB
    """Of one."""
    total_bytes: int = 2048 * MIB
    """Of all."""


def next_blob(attempt_id: str, collected: Sized) -> str:
    """The key under which the next file grows, behind those that the attempt has."""
    return f"artifacts/{attempt_id}/{len(collected)}"


def unfinished_blobs(attempt_id: str, collected: Sized, together: int) -> tuple[str, ...]:
    """All the keys under which there may be bytes of which no row tells; `together` files can be on their way."""
    return tuple(f"artifacts/{attempt_id}/{len(collected) + number}" for number in range(together))


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A collected file."""

    path: str
    size: int
    sha256: str
    blob: str
    """Key in the blob store; empty when the bytes are not kept any more."""
