"""Image registries in our words: who asks, and what they say."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import SecretStr


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryLogin:
    """Of a person or a robot at a registry."""

    username: str
    """NGC's is always `$oauthtoken`."""
    password: SecretStr = field(repr=False)
    """Or a token, where the registry wants one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenImage:
    """What is known of an image by digest once somebody has it."""

    platforms: tuple[str, ...] = ()
    """`linux/arm64`, sorted; empty when nobody says."""
    kept_by: str = ""
    """The provider that has it while its registry is silent; empty when somebody was asked."""
    tag_points_to: str = ""
    """`sha256:…` that the tag stands for now; empty when there is none, or nobody says."""
