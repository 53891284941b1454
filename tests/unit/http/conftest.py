"""One planned run with one attempt, and the application over the real store."""

from __future__ import annotations

import httpx
import pytest

from gpurun.adapters.blobs import FolderBlobs
from gpurun.http.server import build_app
from tests.unit.http.world import World, services_over


@pytest.fixture
async def world(store, clock, tmp_path):
    services = services_over(store, clock, FolderBlobs(tmp_path / "blobs"))
    transport = httpx.ASGITransport(build_app(services), raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://gpurun.test") as client:
        yield World(services=services, client=client)


@pytest.fixture
def signed(world):
    return world.signed
