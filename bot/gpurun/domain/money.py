"""Amounts as people write them, in micro-USD."""

from __future__ import annotations

import re

MILLION = 1_000_000


def usd_micro(text: str) -> int:
    """`0.42` or `$0.42` as 420,000. Raises ValueError with two sentences."""
    if not re.fullmatch(r"\$?[0-9]{1,6}(\.[0-9]{1,6})?", text):
        raise ValueError(f"`max-cost={text[:20]}` is no amount. Write dollars such as `max-cost=0.50`")
    whole, _, part = text.removeprefix("$").partition(".")
    return int(whole) * MILLION + int(part.ljust(6, "0"))


def usd_text(micro: int) -> str:
    """The shortest text that `usd_micro` reads as this."""
    whole, part = divmod(micro, MILLION)
    digits = f"{part:06d}".rstrip("0")
    return f"{whole}.{digits.ljust(2, '0')}" if digits else str(whole)


def usd_up(micro: int) -> int:
    """The next whole cent: a ceiling that somebody is to type is never below what it is for."""
    return -(-micro // 10_000) * 10_000
