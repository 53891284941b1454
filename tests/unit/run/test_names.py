from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.run.names import InstanceName, attempt_name, owned_prefix, parse_name

ATTEMPT = "01kdxyz0000000000000000000"


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2300, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_a_name_says_who_what_and_until_when(deadline):
    name = attempt_name("a1b2c3d4", ATTEMPT, deadline)
    assert len(name) <= 60
    assert name.startswith(owned_prefix("a1b2c3d4"))
    assert parse_name(name) == InstanceName(
        install8="a1b2c3d4", attempt_id=ATTEMPT, hard_deadline=deadline.replace(microsecond=0)
    )


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gpurun",
        f"gpurun-a1b2c3d4-{ATTEMPT}",
        f"gpurun-a1b2c3d4-{ATTEMPT}-zzzzzzzzzz",  # a year that no clock has
        f"gpurun-a1b2c3d4-{ATTEMPT}-ab\n",
        f"other-a1b2c3d4-{ATTEMPT}-ab",
    ],
)
def test_a_foreign_name_is_none(name):
    assert parse_name(name) is None
