"""What the routes need: ports and numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import SecretStr

from gpurun.domain.run import Attempt
from gpurun.domain.stream import ArtifactLimits
from gpurun.http.maskers import Maskers
from gpurun.ports.bytes import Blobs, Git, Hub
from gpurun.ports.clock import Clock
from gpurun.ports.layers import Layers
from gpurun.ports.store import Store
from gpurun.ports.vault import Vault
from gpurun.telemetry.redact import Masker


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServices:
    """Everything that `build_app` connects."""

    store: Store
    git: Git
    hub: Hub
    layers: Layers
    blobs: Blobs
    clock: Clock
    maskers: Maskers
    vault: Vault
    install_secret: bytes = field(repr=False)
    """The key that tokens of attempts are derived from."""
    webhook_secrets: tuple[SecretStr, ...]
    """One, or two while a secret is being changed. Without any, deliveries are refused."""
    public_url: str
    log_quota_bytes: int
    metrics_quota_bytes: int = 256 * 1024 * 1024
    """86,400 lines, a day, of 3 KB."""
    mounting: frozenset[str] = frozenset()
    """Providers whose instances have the weights of their plan mounted before they start."""
    artifacts: ArtifactLimits = field(default_factory=ArtifactLimits)

    async def masker(self, attempt: Attempt) -> Masker:
        """Hides its tokens and what it was given, whichever process gave it."""
        await self.vault.learn(attempt.id)
        return await self.maskers.beside(attempt)
