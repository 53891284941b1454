"""What the routes need: ports and numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import SecretStr

from gpurun.domain.run import Attempt
from gpurun.ports.bytes import Blobs, Git, Hub
from gpurun.ports.clock import Clock
from gpurun.ports.store import Store
from gpurun.run import tokens

Masks = Callable[[Attempt], tuple[SecretStr, ...]]
"""The secrets of an attempt that must never be shown."""


def token_masks(install_secret: bytes) -> Masks:
    """The tokens of an attempt, whole and without the attempt id in front."""

    def masks(attempt: Attempt) -> tuple[SecretStr, ...]:
        made = [tokens.claim_token(install_secret, attempt.id)]
        if attempt.boot_id:
            made.append(tokens.run_token(install_secret, attempt.id, attempt.boot_id))
        return tuple(SecretStr(text) for token in made for text in (token, token.partition(".")[2]))

    return masks


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServices:
    """Everything that `build_app` connects."""

    store: Store
    git: Git
    hub: Hub
    blobs: Blobs
    clock: Clock
    install_secret: bytes = field(repr=False)
    """The key that tokens of attempts are derived from."""
    webhook_secrets: tuple[SecretStr, ...]
    """One, or two while a secret is being changed. Without any, deliveries are refused."""
    public_url: str
    log_quota_bytes: int
    metrics_quota_bytes: int = 256 * 1024 * 1024
    """86,400 lines, a day, of 3 KB."""
    artifacts_quota_bytes: int = 1024 * 1024 * 1024
    """Of one attempt together."""
    more_masks: Masks = lambda _: ()
    """Secrets of trusted runs, beside the attempt's own tokens."""

    def masks(self, attempt: Attempt) -> tuple[SecretStr, ...]:
        """All of them."""
        return (*token_masks(self.install_secret)(attempt), *self.more_masks(attempt))
