"""Secrets of repositories, as runs get them."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from gpurun.domain.forge import RepoRef
from gpurun.domain.secret import GivenSecret


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

        The versions in it belong to the attempt once `ports.store.SecretRows.hand_out` has said so in the transaction
        of the claim. Raises: SecretUnavailable.
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
