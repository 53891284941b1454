"""What the engine's steps work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpurun.domain.errors import Bug
from gpurun.domain.run import Attempt, AuditEntry
from gpurun.domain.stream import StreamName
from gpurun.ports.bytes import Git, Hub, Images
from gpurun.ports.clock import Chance, Clock
from gpurun.ports.forge import Forge
from gpurun.ports.layers import Layers
from gpurun.ports.provider import Provider
from gpurun.ports.store import Store
from gpurun.ports.uplink import Uplinks
from gpurun.ports.vault import Vault
from gpurun.run.names import owned_prefix
from gpurun.telemetry.redact import Masker

CALL_TIMEOUT_S = 30.0
"""Below the lease, so that a call never outlives it."""

MOVES = 5
"""Decisions about a row in one transaction; no row needs more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentBundle:
    """The agent as every instance gets it."""

    path: str
    """The zip on the bot's disk."""
    sha256: str
    boot_script: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineServices:
    """Ports and identity of this process."""

    store: Store
    clock: Clock
    chance: Chance
    git: Git
    hub: Hub
    layers: Layers
    images: Images
    forge: Forge
    uplinks: Uplinks
    providers: Mapping[str, Provider]
    install_id: str
    """8 characters, lower case; stands in the name of every instance."""
    install_secret: bytes = field(repr=False)
    agent: AgentBundle
    slots: Mapping[str, int]
    """Instances at a time, by provider. A provider without an entry has none."""
    vault: Vault
    masker: Callable[[Attempt], Awaitable[Masker]]
    """Hides what an attempt was given, whichever process gave it."""
    stream_bytes: Mapping[StreamName, int]
    """What is kept of each stream of an attempt."""
    refuse_untrusted: frozenset[str] = frozenset()
    """Providers that take no code which somebody had to approve, whatever a policy says."""

    @property
    def prefix(self) -> str:
        """What the name of every instance of ours starts with."""
        return owned_prefix(self.install_id)

    def provider(self, name: str) -> Provider:
        """Raises Bug when a row names a provider that is not configured."""
        try:
            return self.providers[name]
        except KeyError:
            raise Bug(f"The provider {name!r} is not configured here.") from None


def engine_audit(at: datetime, kind: str, subject: str, **data: str | int | None) -> AuditEntry:
    """An audit row in the engine's name. Empty values are left out."""
    return AuditEntry(at=at, actor="engine", kind=kind, subject=subject, data={k: v for k, v in data.items() if v})
