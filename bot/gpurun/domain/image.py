"""Image registries in our words: who asks, and what they say."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import SecretStr

HUB = "docker.io"


def registry_of(image: str) -> str:
    """`ghcr.io` of `ghcr.io/org/app:1.2`; `docker.io` of a name without a host. As Docker reads names."""
    first, slash, _ = image.partition("/")
    return first if slash and (first == "localhost" or "." in first or ":" in first) else HUB


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryLogin:
    """Of a person or a robot at a registry."""

    username: str
    """NGC's is always `$oauthtoken`."""
    password: SecretStr = field(repr=False)
    """Or a token, where the registry wants one."""
    server: str = ""
    """The registry that may get it; empty: that of the image which it is given with."""

    def is_for(self, image: str) -> bool:
        """Whether that image's registry may get it."""
        return not self.server or self.server == registry_of(image)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenImage:
    """What is known of an image by digest once somebody has it."""

    platforms: tuple[str, ...] = ()
    """`linux/arm64`, sorted; empty when nobody says."""
    kept_by: str = ""
    """The provider that has it while its registry is silent; empty when somebody was asked."""
    tag_points_to: str = ""
    """`sha256:…` that the tag stands for now; empty when there is none, or nobody says."""
