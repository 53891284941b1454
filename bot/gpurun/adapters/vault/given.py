"""The vault of a local run: values that the person at the terminal has given for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from anyio import to_thread
from pydantic import SecretStr

from gpurun.adapters.vault.opening import require_together
from gpurun.domain.errors import SecretUnavailable
from gpurun.domain.forge import RepoRef
from gpurun.domain.secret import GivenSecret
from gpurun.ports.secrets import Secrets


class GivenVault:
    """`ports.vault.Vault` of one process and one run; nothing of it is kept."""

    def __init__(self, values: Mapping[str, SecretStr], registry: Secrets) -> None:
        self._values = values
        self._registry = registry

    async def check(self, repo: RepoRef, names: Sequence[str]) -> None:
        lacking = [name for name in names if name not in self._values]
        if lacking:
            raise SecretUnavailable(
                f"The job names secrets that were not given: {', '.join(lacking)}.",
                hint=f"Write {lacking[0]}=… into the file .env at the top of the checkout.",
            )
        await to_thread.run_sync(require_together, self._given(names))

    async def values(self, repo: RepoRef, names: Sequence[str], attempt_id: str) -> tuple[GivenSecret, ...]:
        await self.check(repo, names)
        for name in names:
            self._registry.register(self._values[name], attempt_id=attempt_id)
        return self._given(names)

    def _given(self, names: Sequence[str]) -> tuple[GivenSecret, ...]:
        return tuple(GivenSecret(name=name, value=self._values[name]) for name in names)

    async def own_use(self, repo: RepoRef, name: str) -> SecretStr | None:
        value = self._values.get(name)
        if value is not None:
            self._registry.register(value)
        return value

    async def learn(self, attempt_id: str) -> None:
        """There is no other process that could have given it something."""

    def let_go(self, live: AbstractSet[str]) -> None:
        """They end with the process."""
