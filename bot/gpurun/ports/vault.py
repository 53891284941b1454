"""Secrets of repositories: as runs get them, and as they stand in the store."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Protocol

from pydantic import SecretStr

from gpurun.domain.forge import RepoRef
from gpurun.domain.secret import GivenSecret, KeptSecret, Sealed


class Vault(Protocol):
    """Whatever it hands out is registered for its attempt first (`ports.secrets`), in this process.

    Which run may have a secret is not its business: who asks it, asks `run.trust` and the policy before.
    """

    async def check(self, repo: RepoRef, names: Sequence[str]) -> None:
        """Returns when a run of that repository would get all of them now.

        Raises: SecretUnavailable, one sentence for those that are not set and one for those that cannot be read.
        """
        ...

    async def values(self, repo: RepoRef, names: Sequence[str], attempt_id: str) -> tuple[GivenSecret, ...]:
        """What that attempt gets, in the order of `names`; an attempt that was given something gets the same again.

        The versions in it belong to the attempt once `SecretRows.hand_out` has said so in the transaction
        of the claim. Raises: SecretUnavailable.
        """
        ...

    async def own_use(self, repo: RepoRef, name: str) -> SecretStr | None:
        """A secret that the bot itself uses for that repository, such as a login, and gives to no attempt. It is
        registered as the bot's own, and from now on that repository's: another one that takes its name gets nothing.

        None where nobody keeps secrets, and none was given. Raises: SecretUnavailable.
        """
        ...

    async def learn(self, attempt_id: str) -> None:
        """What the attempt was given, by whichever process, is registered here when this returns.

        Cheap: asks the store once for each attempt. When it cannot be read, the attempt counts as unknown
        (`Secrets.cannot_know`).
        """
        ...

    def let_go(self, live: AbstractSet[str]) -> None:
        """Attempts that are not among the live, and were not at the call before, are forgotten."""
        ...


class SecretRows(Protocol):
    """Part of `ports.store.Tx`: sealed secrets. `repo` is what `domain.secret.secret_scope` makes of a name."""

    def set_secret(self, secret: KeptSecret) -> None:
        """A new version; the one before is replaced."""
        ...

    def remove_secret(self, repo: str, name: str) -> bool:
        """False when there is none in force."""
        ...

    def secrets(self, repo: str) -> tuple[KeptSecret, ...]:
        """Those in force, by name."""
        ...

    def given(self, attempt_id: str) -> tuple[KeptSecret, ...]:
        """The versions that an attempt was given, by name."""
        ...

    def hand_out(self, attempt_id: str, versions: Sequence[str], *, repo_id: int) -> bool:
        """A fact, once the attempt's answer may hold them. False when a version is not there any more, or belongs to
        another repository: nothing was written, look again.
        """
        ...

    def claim_secret(self, version: str, *, repo_id: int) -> bool:
        """A fact: the version is of that repository. False when it is not there any more, or of another one."""
        ...

    def sealed_otherwise(self, key_id: str, *, after: str, limit: int) -> tuple[KeptSecret, ...]:
        """Versions that another key opens, with ids behind `after`, in order of their ids."""
        ...

    def reseal(self, secret: KeptSecret, sealed: Sealed) -> bool:
        """False when it is not sealed any more as `secret` says."""
        ...

    def secret_keys(self) -> frozenset[str]:
        """Ids of the keys that some version needs."""
        ...

    def forget_replaced(self, *, unused_since: datetime) -> int:
        """Deletes replaced versions whose attempts are all over since then; how many."""
        ...
