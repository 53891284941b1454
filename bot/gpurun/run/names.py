"""Names of instances: installation, attempt and hard deadline, so that a stranger to our database can judge."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAME = re.compile(r"gpurun-([0-9a-z]{8})-([0-9a-z]{26})-([0-9a-z]{1,10})")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceName:
    """What an instance's name says."""

    install8: str
    attempt_id: str
    hard_deadline: datetime


def attempt_name(install8: str, attempt_id: str, hard_deadline: datetime) -> str:
    """`gpurun-<install8>-<attempt ulid>-<hard deadline, unix seconds in base 36>`, at most 60 characters."""
    return f"{owned_prefix(install8)}{attempt_id}-{_base36(int(hard_deadline.timestamp()))}"


def owned_prefix(install8: str) -> str:
    """What every instance of this installation starts with."""
    return f"gpurun-{install8}-"


def parse_name(name: str) -> InstanceName | None:
    """None when the name is not of our shape."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    install8, attempt_id, deadline = match.groups()
    try:
        at = datetime.fromtimestamp(int(deadline, 36), UTC)
    except (OverflowError, OSError, ValueError):
        return None
    return InstanceName(install8=install8, attempt_id=attempt_id, hard_deadline=at)


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
        if number == 0:
            return digits
