"""What every test gets."""

from __future__ import annotations

from functools import cache

import pytest
import structlog
from cryptography.hazmat.primitives import serialization
from hypothesis import HealthCheck, settings

from tests.fakes.clock import FakeChance, FakeClock
from tests.fakes.github.record import assert_clean

pytest_plugins = ["tests.services.postgres", "tests.services.engine", "tests.services.death_table"]

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        # the default draws each traceback with Rich, which takes longer than most tests
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)
# the fake App has one key, and every test that reads it anew pays 60 ms
serialization.load_pem_private_key = cache(serialization.load_pem_private_key)


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
