"""The audit chain grows as long as the process lives."""

from __future__ import annotations

import anyio
import pytest

from gpurun.domain.errors import Transient
from gpurun.domain.run import AuditEntry
from gpurun.flow.seal import seal_for_ever


@pytest.fixture
def store_url(tmp_path):
    return str(tmp_path / "gpurun.sqlite")


async def test_a_database_that_is_away_does_not_end_the_sealer(store, clock, monkeypatch):
    entry = AuditEntry(at=clock.now(), actor="cli", kind="tried", subject="run:1")
    await store.write(lambda tx: tx.audit(entry))
    write, failures = store.write, [Transient("The database did not do its work."), OSError("disk")]

    async def flaky(fn, **how):
        if failures:
            raise failures.pop()
        return await write(fn, **how)

    monkeypatch.setattr(store, "write", flaky)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(seal_for_ever, store, clock)
            while (await store.verify_audit()).sealed == 0:
                clock.advance(seconds=1)
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
    assert not failures
