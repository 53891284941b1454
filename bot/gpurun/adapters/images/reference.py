"""Where an image reference points: the registry's address and the repository there."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

HUB = "docker.io"
HUB_API = "registry-1.docker.io"
HUB_LOGINS = ("https://index.docker.io/v1/", HUB, "index.docker.io", HUB_API)
"""The keys under which `docker login`, and then others, keep Docker Hub's credentials."""


@dataclass(frozen=True, slots=True)
class Place:
    """`https://ghcr.io`, `org/app`."""

    base_url: str
    repository: str
    login_keys: tuple[str, ...]
    """The registry's keys in docker's config.json, the first choice first."""


def place_of(name: str) -> Place:
    """Where a name, with or without a tag, points to.

    A first part with a dot or a colon, or `localhost`, is a registry; everything else is on Docker Hub.

    Source: the reference grammar of the distribution project.
    """
    first, slash, rest = name.partition("/")
    if not (slash and (first == "localhost" or "." in first or ":" in first)):
        first, rest = HUB, name
    repository = _without_tag(rest)
    if first in {HUB, "index.docker.io", HUB_API}:
        return Place(f"https://{HUB_API}", repository if "/" in repository else f"library/{repository}", HUB_LOGINS)
    return Place(f"{'http' if is_loopback(first) else 'https'}://{first}", repository, (first,))


def is_loopback(address: str) -> bool:
    """`host[:port]` of this machine. Docker Engines too speak plain HTTP to these and to nobody else."""
    host = address.rsplit(":", 1)[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _without_tag(path: str) -> str:
    head, slash, last = path.rpartition("/")
    return f"{head}{slash}{last.split(':', 1)[0]}"
