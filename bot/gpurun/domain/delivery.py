"""A webhook delivery as the accept path stores it, and the narrow events that intake reads from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class InboxState(StrEnum):
    """What became of a delivery; docs/concepts/engine.md says what each means."""

    NEW = "new"
    DONE = "done"
    IGNORED = "ignored"
    POISON = "poison"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Six fields of the delivery and its raw body."""

    guid: str
    event: str
    action: str
    installation_id: int
    repo: str
    """`owner/name`, empty for events without a repository."""
    number: int
    """Issue or pull request, 0 for none. Of a button: minus the id of its check, so that presses of one check are in
    order, and hold up nobody else."""
    body: bytes = field(repr=False)
    received_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """A delivery with its place in the queue."""

    id: int
    delivery: Delivery
    state: InboxState
    tries: int
    note: str = ""
    slot_at: datetime | None = None
    """When it is its turn to ask the forge (`domain.pace`)."""
