"""Jobs share one bridge network of their own, where containers do not see each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpurun.domain.errors import ProviderRefused

if TYPE_CHECKING:
    from docker.api.client import APIClient

ISOLATED = "com.docker.network.bridge.enable_icc"


def ensure_network(api: APIClient, name: str) -> None:
    """The network is there. Idempotent, also for several processes at once; vendor errors pass.

    Raises: ProviderRefused when a network of that name exists and lets containers talk to each other.
    """
    import docker.errors

    try:
        found = api.inspect_network(name)
    except docker.errors.NotFound:
        found = _create(api, name)
    if (found.get("Options") or {}).get(ISOLATED) != "false":
        raise ProviderRefused(
            f"The Docker network {name} lets containers talk to each other, so it is not ours. "
            f"Remove it (docker network rm {name}); it is made anew.",
            kind="invalid",
        )


def _create(api: APIClient, name: str) -> dict[str, object]:
    import docker.errors

    try:
        api.create_network(
            name, driver="bridge", check_duplicate=True, options={ISOLATED: "false"}, labels={"gpurun.network": "jobs"}
        )
    except docker.errors.APIError as exc:
        if exc.status_code != 409:  # another process was first
            raise
    found: dict[str, object] = api.inspect_network(name)
    return found
