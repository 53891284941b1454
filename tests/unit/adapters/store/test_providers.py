from dataclasses import replace
from datetime import timedelta

from gpurun.domain.run import ProviderAccount, StrayState
from gpurun.ports.store import Kind
from tests.fakes.clock import START
from tests.unit.adapters.store.samples import a_stray, claim, claim_one

LATER = START + timedelta(seconds=15)


async def test_an_account_is_made_once_and_due_at_once(store, clock):
    await store.write(lambda tx: tx.ensure_account("docker"))
    clock.advance(seconds=5)
    await store.write(lambda tx: tx.ensure_account("docker"))
    assert await store.read(lambda tx: tx.account("docker")) == ProviderAccount(provider="docker", due_at=START)
    assert await store.read(lambda tx: tx.account("vast")) is None


async def test_a_saved_account_is_read_back(store):
    await store.write(lambda tx: tx.ensure_account("docker"))
    lease = await claim_one(store, Kind.PROVIDER_ACCOUNT)
    seen = ProviderAccount(
        provider="docker", due_at=LATER, tries=1, last_error="401", list_ok_at=START, broken_since=START
    )
    assert await store.write(lambda tx: tx.save_account(seen, lease))
    assert not await store.write(lambda tx: tx.save_account(seen, lease))
    assert await store.read(lambda tx: tx.account("docker")) == seen
    assert await claim(store, Kind.PROVIDER_ACCOUNT) == ()


async def test_a_known_stray_stays_as_it_is(store, clock):
    await store.write(lambda tx: tx.add_stray(a_stray()))
    await store.write(lambda tx: tx.add_stray(a_stray("again", first_seen=LATER)))
    await store.write(lambda tx: tx.add_stray(a_stray("other", ref="container-2", first_seen=LATER)))
    strays = await store.read(lambda tx: tx.strays("docker"))
    assert strays == (a_stray(), a_stray("other", ref="container-2", first_seen=LATER))
    assert await store.read(lambda tx: tx.strays("vast")) == ()


async def test_a_saved_stray_is_read_back(store):
    await store.write(lambda tx: tx.add_stray(a_stray()))
    lease = await claim_one(store, Kind.STRAY)
    tried = a_stray(state=StrayState.DESTROYING, due_at=LATER, tries=1, last_error="busy")
    assert await store.write(lambda tx: tx.save_stray(tried, lease))
    assert not await store.write(lambda tx: tx.save_stray(tried, lease))
    assert await store.read(lambda tx: tx.stray("stray-1")) == tried
    assert await store.read(lambda tx: tx.stray("none")) is None


async def test_an_instance_that_comes_back_is_a_stray_again(store):
    await store.write(lambda tx: tx.add_stray(a_stray()))
    lease = await claim_one(store, Kind.STRAY)
    await store.write(lambda tx: tx.save_stray(replace(a_stray(), state=StrayState.GONE, due_at=None), lease))
    assert await claim(store, Kind.STRAY) == ()
    await store.write(lambda tx: tx.add_stray(a_stray("again", first_seen=LATER)))
    assert await store.read(lambda tx: tx.stray("stray-1")) == a_stray(first_seen=LATER)
    assert (await claim_one(store, Kind.STRAY)).id == "stray-1"
