"""The vault of a server: sealed rows in the store, keys in the key file."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

import structlog
from anyio import to_thread
from pydantic import SecretStr

from gpurun.adapters.vault.keyfile import KeyFile
from gpurun.adapters.vault.opening import missing, opened, require_together
from gpurun.domain.errors import SecretUnavailable
from gpurun.domain.forge import RepoRef
from gpurun.domain.secret import GivenSecret, KeptSecret, secret_scope
from gpurun.ports.secrets import Secrets
from gpurun.ports.store import Store, Tx

MAX_LEARNED = 16_384
"""Attempts that are not asked for again. Forgetting one costs a read."""

log = structlog.get_logger()


class StoredVault:
    """`ports.vault.Vault`. Any number of processes may share rows and key file."""

    def __init__(self, store: Store, keys: KeyFile, registry: Secrets) -> None:
        self._store = store
        self._keys = keys
        self._registry = registry
        self._learned: OrderedDict[str, None] = OrderedDict()
        self._leaving: frozenset[str] = frozenset()

    async def check(self, repo: RepoRef, names: Sequence[str]) -> None:
        await self._opened(partial(_in_force, repo=repo, names=names), repo, names)

    async def values(self, repo: RepoRef, names: Sequence[str], attempt_id: str) -> tuple[GivenSecret, ...]:
        def look(tx: Tx) -> tuple[KeptSecret, ...]:
            return tx.given(attempt_id) or _in_force(tx, repo=repo, names=names)

        given = await self._opened(look, repo, names)
        self._register(attempt_id, given)
        return given

    async def own_use(self, repo: RepoRef, name: str) -> SecretStr | None:
        """Looks twice when a version was replaced in between."""
        for _ in range(2):
            (secret,) = await self._opened(partial(_in_force, repo=repo, names=[name]), repo, [name])
            claim = partial(_claim, version=secret.version, repo_id=repo.id)
            if await self._store.read(partial(_is_of, repo=repo, name=name)) or await self._store.write(claim):
                self._registry.register(secret.value)
                return secret.value
        raise missing([name], repo.name)

    async def learn(self, attempt_id: str) -> None:
        if attempt_id in self._learned:
            return
        given, is_final = await self._store.read(partial(_given, attempt_id=attempt_id))
        if given:
            try:
                values = await self._unsealed(lambda tx: tx.given(attempt_id), given)
                # what is registered stays: a version that comes back with other values would tell an agent nothing
                self._register(attempt_id, values)
                self._registry.can_know(attempt_id)
            except SecretUnavailable as error:
                log.warning("secrets_not_readable", attempt=attempt_id, error=str(error))
                self._registry.cannot_know(attempt_id)
                return  # the key may be brought back
        if is_final:
            self._learned[attempt_id] = None
            if len(self._learned) > MAX_LEARNED:
                self._learned.popitem(last=False)

    def let_go(self, live: AbstractSet[str]) -> None:
        over = self._registry.attempts() - live
        for attempt_id in over & self._leaving:
            self._registry.forget(attempt_id)
            self._learned.pop(attempt_id, None)
        self._leaving = over

    def _register(self, attempt_id: str, given: Sequence[GivenSecret]) -> None:
        for secret in given:
            self._registry.register(secret.value, attempt_id=attempt_id)

    async def _opened(
        self, look: Callable[[Tx], tuple[KeptSecret, ...]], repo: RepoRef, names: Sequence[str]
    ) -> tuple[GivenSecret, ...]:
        found = {secret.name: secret for secret in await self._store.read(look)}
        lacking = [name for name in names if name not in found]
        if lacking:
            raise missing(lacking, repo.name)
        strange = [name for name in names if found[name].repo_id not in (None, repo.id)]
        if strange:
            raise missing(strange, repo.name, ": what is there was set for another repository that had this name")
        given = await self._unsealed(look, tuple(found.values()))
        await to_thread.run_sync(require_together, given)
        by_name = {secret.name: secret for secret in given}
        return tuple(by_name[name] for name in names)

    async def _unsealed(
        self, look: Callable[[Tx], tuple[KeptSecret, ...]], kept: tuple[KeptSecret, ...]
    ) -> tuple[GivenSecret, ...]:
        """Looks twice: between the rows and the key file a rotation may have ended. Raises SecretUnavailable."""
        try:
            return await to_thread.run_sync(opened, self._keys, kept)
        except SecretUnavailable:
            kept = await self._store.read(look)
            return await to_thread.run_sync(opened, self._keys, kept)


def _in_force(tx: Tx, *, repo: RepoRef, names: Sequence[str]) -> tuple[KeptSecret, ...]:
    return tuple(secret for secret in tx.secrets(secret_scope(repo.name)) if secret.name in names)


def _is_of(tx: Tx, *, repo: RepoRef, name: str) -> bool:
    """So that what was written once is not written again."""
    return any(secret.repo_id == repo.id for secret in _in_force(tx, repo=repo, names=[name]))


def _claim(tx: Tx, *, version: str, repo_id: int) -> bool:
    return tx.claim_secret(version, repo_id=repo_id)


def _given(tx: Tx, *, attempt_id: str) -> tuple[tuple[KeptSecret, ...], bool]:
    """And whether nothing can be added any more: an attempt is given its secrets with its claim."""
    attempt = tx.attempt(attempt_id)
    return tx.given(attempt_id), attempt is not None and attempt.claimed_at is not None
