from __future__ import annotations

import pytest

from gpurun.adapters.secrets import MemorySecrets
from gpurun.adapters.vault import KeyFile, StoredVault
from gpurun.domain.run import AttemptState
from gpurun.ports.store import Kind
from tests.fakes.desk import at_the_desk
from tests.fakes.rows import REPO, a_run, an_attempt

__all__ = ["REPO"]


@pytest.fixture
def keys(tmp_path):
    return KeyFile(tmp_path / "secrets.key")


class Town:
    """One repository, an operator's desk, and server processes."""

    def __init__(self, store, keys, chance) -> None:
        self.store = store
        self.keys = keys
        self.chance = chance

    async def desk(self, do):
        return await at_the_desk(do, self.store, self.keys.path, self.chance)

    def process(self):
        """A server process: its own memory, its own view of the key file."""
        registry = MemorySecrets()
        return StoredVault(self.store, KeyFile(self.keys.path), registry), registry

    async def attempt(self, id="01kdattempt000000000000001", *, claimed=True):
        def add(tx):
            if tx.run(a_run().id) is None:
                tx.add_run(a_run())
            tx.add_attempt(an_attempt(id=id, number=len(tx.attempts(a_run().id)) + 1, name=f"gpurun-x-{id}-y"))
            if claimed:
                assert tx.set_claimed(id, boot_id="boot", token_sha256="t", landed={})

        await self.store.write(add)
        return id

    async def end(self, id):
        """The attempt is gone."""
        from dataclasses import replace
        from datetime import timedelta

        def end(tx):
            tx.wake(Kind.ATTEMPT, id)
            leases = tx.claim(Kind.ATTEMPT, limit=10, token="t", length=timedelta(seconds=75))
            (lease,) = [one for one in leases if one.id == id]
            row = replace(tx.attempt(id), state=AttemptState.GONE, state_since=tx.now(), gone_at=tx.now(), due_at=None)
            assert tx.save_attempt(row, lease)

        await self.store.write(end)

    async def hand_out(self, vault, names, attempt_id, repo=REPO):
        """What the claim does."""
        given = await vault.values(repo, names, attempt_id)
        versions = [secret.version for secret in given]
        assert await self.store.write(lambda tx: tx.hand_out(attempt_id, versions, repo_id=repo.id))
        return {secret.name: secret.value.get_secret_value() for secret in given}


@pytest.fixture
async def town(store, keys, chance):
    return Town(store, keys, chance)
