"""Jobs share one bridge network of their own, where containers do not see each other; untrusted ones another."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpurun.domain.errors import ProviderRefused
from gpurun.domain.offer import Isolation

if TYPE_CHECKING:
    from docker.api.client import APIClient

ISOLATED = "com.docker.network.bridge.enable_icc"
BRIDGE = "com.docker.network.bridge.name"
_BRIDGE_LENGTH = 15
"""Bytes of the name of a network interface. Source: IFNAMSIZ in Linux's include/uapi/linux/if.h, less its end, NUL."""
_THERE_ALREADY = (403, 409)
"""403: a network has that bridge; 409: a network has that name, which newer engines look at."""


def network_of(name: str, isolation: Isolation) -> str:
    """Its name, where `name` is that of the network of STANDARD jobs."""
    return name if isolation is Isolation.STANDARD else f"{name}-{isolation}"


def ensure_network(api: APIClient, name: str) -> Mapping[str, Any]:
    """The network is there, as the engine describes it. Idempotent, also for several processes at once; vendor errors
    pass.

    Raises: ProviderRefused when a network of that name exists and lets containers talk to each other, or has IPv6,
    which the rules of `fence` do not know.
    """
    import docker.errors

    try:
        found: Mapping[str, Any] = api.inspect_network(name)
    except docker.errors.NotFound:
        found = _create(api, name)
    wrong = ""
    if (found.get("Options") or {}).get(ISOLATED) != "false":
        wrong = "lets containers talk to each other"
    elif found.get("EnableIPv6"):
        wrong = "has IPv6"
    if wrong:
        raise ProviderRefused(
            f"The Docker network {name} {wrong}, so it is not ours. "
            f"Remove it (docker network rm {name}); it is made anew.",
            kind="invalid",
        )
    return found


def bridge_of(network: Mapping[str, Any]) -> str:
    """The name of the network's bridge on the engine's machine."""
    named = (network.get("Options") or {}).get(BRIDGE)
    return str(named or f"br-{network['Id'][:12]}")


def _create(api: APIClient, name: str) -> Mapping[str, Any]:
    import docker.errors

    try:
        api.create_network(
            name,
            driver="bridge",
            options={ISOLATED: "false", BRIDGE: _bridge_for(api, name)},
            labels={"gpurun.network": "jobs"},
            enable_ipv6=False,  # an engine may have it as its default
        )
    except docker.errors.APIError as exc:
        if exc.status_code not in _THERE_ALREADY:
            raise
    found: Mapping[str, Any] = api.inspect_network(name)
    return found


def _bridge_for(api: APIClient, name: str) -> str:
    """Engines before 25 make several networks of one name when they are asked at once, and none of them can be used
    then. No engine makes two with one bridge. Other engines may share the machine, so it is one of this engine.
    """
    what = f"{api.info()['ID']}\n{name}"
    return f"gpurun-{hashlib.sha256(what.encode()).hexdigest()}"[:_BRIDGE_LENGTH]
