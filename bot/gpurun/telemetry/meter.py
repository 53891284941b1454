"""Money by our clock: integer micro-USD, rounded up."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpurun.domain.run import Attempt
from gpurun.domain.telemetry import Cost

_MICRO = 1_000_000
_HOUR = timedelta(hours=1)
_MICROSECOND = timedelta(microseconds=1)


def accrued_usd_micro(elapsed: timedelta, usd_per_hour_micro: int) -> int:
    """Rounded up; a negative time (a clock set back) costs nothing."""
    microseconds = max(elapsed, timedelta(0)) // _MICROSECOND
    return -(-microseconds * usd_per_hour_micro // (_HOUR // _MICROSECOND))


def attempt_cost(attempt: Attempt, now: datetime) -> Cost | None:
    """From the create call until the instance was gone; None before there can be one."""
    if attempt.create_sent_at is None:
        return None
    elapsed = max((attempt.gone_at or now) - attempt.create_sent_at, timedelta(0))
    price = attempt.offer.usd_per_hour_micro
    return Cost(
        elapsed=elapsed,
        usd_per_hour_micro=price,
        usd_micro=accrued_usd_micro(elapsed, price),
        declared=attempt.offer.declared,
    )


def usd_text(usd_micro: int) -> str:
    """`$1.25`; amounts below ten cents keep four digits, rounded up so that nothing spent reads as zero."""
    sign, amount = ("-", -usd_micro) if usd_micro < 0 else ("", usd_micro)
    if 0 < amount < _MICRO // 10:
        return f"{sign}$0.{-(-amount // 100):04d}"
    cents = -(-amount // 10_000)
    return f"{sign}${cents // 100}.{cents % 100:02d}"


def cost_line(cost: Cost) -> str:
    """`$0.0210 (declared price $0.50/h × 151 s)`."""
    word = "declared price" if cost.declared else "price"
    seconds = -(-cost.elapsed // timedelta(seconds=1))
    return f"{usd_text(cost.usd_micro)} ({word} {usd_text(cost.usd_per_hour_micro)}/h × {seconds} s)"
