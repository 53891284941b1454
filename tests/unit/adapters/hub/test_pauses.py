"""Limits of the hub: what it says once is kept by everybody until its time is over."""

from __future__ import annotations

import httpx2
import pytest

from gpurun.adapters.hub.pauses import kind_of
from gpurun.domain.errors import HubUnavailable
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelFile, ModelSpec

ID = "acme/tiny"
FILES = {"weights.safetensors": b"x" * 5000, "config.json": b"{}"}
LIMIT = {"RateLimit": '"resolver";r=0;t=90', "RateLimit-Policy": '"fixed window";"resolver";q=3000;w=300'}


@pytest.fixture
def spec(fake) -> ModelSpec:
    return ModelSpec(id=ID, revision=Revision(fake.add_model(ID, FILES)))


async def test_b088_nothing_is_asked_before_the_time_that_the_hub_named(fake, hub, clock, spec):
    fake.fail_next(429, part="/resolve/", headers=LIMIT)
    with pytest.raises(HubUnavailable, match="answered 429") as caught:
        await hub.resolve(spec)
    assert caught.value.retry_after_s == 90.0
    asked = len(fake.seen("/resolve/", method="HEAD"))
    clock.advance(seconds=89)
    for _ in range(12):  # jobs of a matrix
        with pytest.raises(HubUnavailable, match="no more requests of the kind 'resolver'") as caught:
            await hub.resolve(spec)
        assert caught.value.retry_after_s == pytest.approx(1.0)
    assert len(fake.seen("/resolve/", method="HEAD")) == asked
    clock.advance(seconds=1)
    assert (await hub.resolve(spec)).files


async def test_b088_bytes_wait_for_what_a_list_was_told(fake, hub, clock, spec):
    fake.fail_next(429, part="/resolve/", headers=LIMIT)
    with pytest.raises(HubUnavailable):
        await hub.resolve(spec)
    fake.requests.clear()
    file = ModelFile(path="config.json", size=2, sha256="a" * 64, etag="b" * 40)
    with pytest.raises(HubUnavailable, match="no more requests"):
        await anext(hub.open(spec.with_files((file,)), file))
    assert fake.requests == []


async def test_b088_another_kind_goes_on(fake, hub, spec):
    fake.fail_next(429, part="/resolve/", headers=LIMIT)
    with pytest.raises(HubUnavailable):
        await hub.resolve(spec)
    assert await hub.revision_of(ID, "main") == spec.revision


async def test_b088_the_last_answer_that_is_let_through_begins_a_pause_too(fake, hub, clock, spec):
    fake.limits["/api/"] = '"api";r=0;t=30'
    assert await hub.revision_of(ID, "main") == spec.revision
    with pytest.raises(HubUnavailable, match="kind 'api'") as caught:
        await hub.revision_of(ID, "main")
    assert caught.value.retry_after_s == 30.0
    assert len(fake.requests) == 1
    clock.advance(seconds=30)
    fake.limits.clear()
    assert await hub.revision_of(ID, "main") == spec.revision


async def test_b088_a_shorter_answer_ends_no_pause(fake, hub, clock, spec):
    fake.fail_next(429, headers=LIMIT | {"RateLimit": '"api";r=0;t=90'})
    with pytest.raises(HubUnavailable):
        await hub.resolve(spec)
    clock.advance(seconds=10)
    with pytest.raises(HubUnavailable) as caught:
        await hub.resolve(spec)
    assert caught.value.retry_after_s == 80.0


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/models/a/b/tree/main", "api"),
        ("/a/b/resolve/main/x", "resolver"),
        ("/datasets/a/b/resolve/main/x", "resolver"),
        ("/api/resolve-cache/models/a/b/c/x", "resolver"),
        ("/a/b", "pages"),
    ],
)
def test_kinds(path, kind):
    assert kind_of(httpx2.URL(f"https://hub.example{path}")) == kind
