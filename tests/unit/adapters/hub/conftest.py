"""One hub for a file of tests, empty for each of them."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from gpurun.adapters.hub import HuggingFaceHub
from tests.fakes.clock import FakeClock
from tests.fakes.hub import FakeHub


@pytest.fixture(scope="module")
def served_hub():
    hub = FakeHub()
    with hub.serving():
        yield hub


@pytest.fixture
def fake(served_hub):
    served_hub.clear()
    return served_hub


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def make_hub(fake, tmp_path, clock):
    """`make_hub(token=…)`: the adapter, closed at the end; all share one cache folder, as processes do."""
    made = []

    def make(token="", **options):
        hub = HuggingFaceHub(fake.url, SecretStr(token), tmp_path / "cache", clock, **options)
        made.append(hub)
        return hub

    yield make
    for hub in made:
        await hub.close()


@pytest.fixture
async def hub(make_hub):
    return make_hub()
