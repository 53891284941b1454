from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.telemetry import Cost
from gpurun.telemetry.meter import accrued_usd_micro, cost_line, usd_text


@given(st.integers(0, 10**12), st.integers(0, 10**9))
def test_money_is_rounded_up_by_less_than_one_unit(microseconds, price):
    exact = Decimal(microseconds) * price / Decimal(3_600_000_000)
    charged = accrued_usd_micro(timedelta(microseconds=microseconds), price)
    assert exact <= charged < exact + 1


def test_a_clock_set_back_costs_nothing():
    assert accrued_usd_micro(timedelta(seconds=-5), 1_000_000) == 0


@pytest.mark.parametrize(
    ("usd_micro", "text"),
    [
        (0, "$0.00"), (1, "$0.0001"), (50, "$0.0001"), (4_200, "$0.0042"), (99_999, "$0.1000"), (100_000, "$0.10"),
        (1_250_000, "$1.25"), (1_250_001, "$1.26"), (1_234_560_000, "$1234.56"), (-4_200, "-$0.0042"),
    ],
)  # fmt: skip
def test_usd_text(usd_micro, text):
    assert usd_text(usd_micro) == text


def test_cost_line_says_whose_price_it_is():
    free = Cost(elapsed=timedelta(seconds=12.3), usd_per_hour_micro=0, usd_micro=0, declared=True)
    assert cost_line(free) == "$0.00 (declared price $0.00/h × 13 s)"
    paid = Cost(elapsed=timedelta(hours=1), usd_per_hour_micro=440_000, usd_micro=440_000, declared=False)
    assert cost_line(paid) == "$0.44 (price $0.44/h × 3600 s)"
