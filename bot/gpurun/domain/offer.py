"""What a provider rents, what is asked of it, and what it says exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import SecretStr

from gpurun.domain.ids import BuiltImage, ImageRef
from gpurun.domain.image import RegistryLogin
from gpurun.domain.layer import LayerUse
from gpurun.domain.plan import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What would be rented at which price."""

    provider: str
    id: str
    """The provider's own name of it (a GPU type, a host)."""
    label: str
    """What a person reads: `RTX 4090 (RunPod, secure)`, `local Docker`."""
    usd_per_hour_micro: int
    """Integer micro-USD an hour."""
    declared: bool
    """True when the price is what the operator declared and no provider's bill."""
    gpu: str = ""
    boot_timeout_s: int = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """How the agent in the instance reaches the bot."""

    kind: Literal["unix", "https"]
    address: str
    """unix: the host folder to mount read-only, holding `bot.sock`; https: the base URL."""


class Isolation(StrEnum):
    """What an instance is kept from. A provider that cannot promise it refuses the launch."""

    STANDARD = "standard"
    """Code of people who may push: the internet, and neither the bot nor the metadata address of a cloud."""
    UNTRUSTED = "untrusted"
    """Code that somebody else wrote: also no private network, and nothing that outlives the instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything one create call needs. Idempotent by `name`: nobody calls create twice for it."""

    name: str
    """`gpurun-<install8>-<attempt ulid>-<hard deadline base36>`."""
    attempt_id: str
    install: str
    """8 characters naming this installation of the bot; label `gpurun.install`."""
    offer: Offer
    image: ImageRef | BuiltImage
    needs: Resources
    hard_deadline: datetime
    uplink: Uplink
    boot_script: str
    """POSIX sh, ≤ 4,096 characters."""
    agent_path: str
    """The agent zip on the bot's disk."""
    agent_sha256: str
    claim_token: SecretStr
    login: RegistryLogin | None = None
    """For pulling the image; never part of the instance. None: what the provider is logged in with."""
    env: Mapping[str, str] = field(default_factory=dict)
    """`GPURUN_*` for the boot script; no secret."""
    weights: str = ""
    """A folder on the bot's disk to be mounted read-only as the hub cache; empty: the agent fetches weights itself."""
    layer: LayerUse | None = None
    """The volume of `setup`; None: it is carried out and nothing of it is kept."""
    isolation: Isolation = Isolation.STANDARD
    """UNTRUSTED has no `login`, and no `layer` that it could write."""


class InstanceState(StrEnum):
    """What the provider says of an instance, in our words."""

    BOOTING = "booting"
    RUNNING = "running"
    EXITED = "exited"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """What an instance has written to the disk of its host, as the provider measured it some seconds ago."""

    used_mib: int
    limit_mib: int
    """What it may use; 0: no limit."""
    host_free_mib: int | None = None
    """Set when the host is nearly full and no other instance of ours uses more: what is left."""

    @property
    def is_too_much(self) -> bool:
        """The instance must end."""
        return self.host_free_mib is not None or 0 < self.limit_mib < self.used_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """One instance that carries our name prefix."""

    ref: str
    """The provider's id of it."""
    name: str
    state: InstanceState
    detail: str = ""
    exit_code: int | None = None
    created_at: datetime | None = None
    disk: DiskUse | None = None
    """None: not measured, or not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """How far `prepare` is. `ready` allows create."""

    ready: bool
    message: str = ""
    """What a person reads, `pulling image 43 %`."""
    done_bytes: int = 0
    total_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeLine:
    """One line of a bill. Unknown is never zero: a charge that is not known has no line."""

    what: str
    usd_micro: int
    estimated: bool
