"""What every test gets."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.fakes.clock import FakeChance, FakeClock
from tests.fakes.github.record import assert_clean

pytest_plugins = ["tests.services.postgres", "tests.services.engine", "tests.services.death_table"]

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


@pytest.fixture(autouse=True)
def githubs_contract():
    """No test passes in which the bot, or the fake GitHub, said what GitHub's OpenAPI document does not allow."""
    yield
    assert_clean()


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def chance(clock):
    return FakeChance(clock)
