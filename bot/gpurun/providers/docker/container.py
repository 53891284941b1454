"""From a Launch to a container, and back from what the engine says of one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gpurun.domain.offer import InstanceState, Launch, Owned, Uplink
from gpurun.domain.plan import Resources
from gpurun.providers.docker.ready_image import (
    AGENT_PATH,
    BOOT_PATH,
    HUB_PATH,
    LAYER_PATH,
    UPLINK_PATH,
    WORK_PATH,
    ready_name,
)

if TYPE_CHECKING:
    from docker.api.client import APIClient

LABEL_ATTEMPT = "gpurun.attempt"
LABEL_INSTALL = "gpurun.install"
LABEL_WATCH = "gpurun.watch"
LABEL_DISK = "gpurun.disk-mib"
"""What the container may write, fixed when it is made. Absent: no limit."""
LABEL_SHELF = "gpurun.layers"
"""Of a volume with a layer of `setup`: whose records know it."""
PIDS_LIMIT = 4096
KEPT_LOG = {"max-size": "16m", "max-file": "2"}
"""The engine keeps only what boot script and agent say; the job's output goes through the agent."""
HOST_KEEPS = 0.1
"""Part of the memory that stays with the host when a job does not say how much it needs."""
_EXITED = re.compile(r"Exited \((\d+)\)")
_STATES = {
    "created": InstanceState.BOOTING,
    "restarting": InstanceState.BOOTING,
    "running": InstanceState.RUNNING,
    "paused": InstanceState.RUNNING,
    "exited": InstanceState.EXITED,
    "dead": InstanceState.ERROR,
}


@dataclass(frozen=True, slots=True)
class Host:
    """What the engine's machine has."""

    cpus: int
    memory_mib: int
    gpus: bool
    """The NVIDIA runtime is registered with the engine."""
    disk_mib: int = 0
    """The whole disk that holds layers; 0: it cannot be seen from here."""
    engine_folder: str = ""
    """Where the engine keeps layers."""
    platform: str = ""
    """`linux/amd64`; empty when the engine does not say."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one container may use. `cpus` 0: all of them, shared with the others."""

    cpus: float
    memory_mib: int
    shm_mib: int
    disk_mib: int = 0
    """0: no limit."""


def limits_for(needs: Resources, host: Host, *, max_runs: int) -> Limits:
    """What was asked for. Else an equal share of 90 % of the memory, half of the memory for /dev/shm, and all CPUs."""
    memory_mib = needs.memory_mib or int(host.memory_mib * (1 - HOST_KEEPS) / max_runs)
    return Limits(needs.cpus, memory_mib, needs.shm_mib or memory_mib // 2)


def fits(needs: Resources, host: Host) -> bool:
    """Whether the machine has it at all; what other containers use is not counted."""
    return not lacks(needs, host)


def lacks(needs: Resources, host: Host) -> str:
    """What the job asks for and the machine does not have, in a sentence; empty when it has all."""
    missing = []
    if needs.gpus and not host.gpus:
        missing.append(f"{needs.gpus} GPU{'s' if needs.gpus > 1 else ''} (it has no NVIDIA container runtime)")
    if needs.cpus > host.cpus:
        missing.append(f"{needs.cpus:g} CPUs (it has {host.cpus})")
    if needs.memory_mib > host.memory_mib:
        missing.append(f"{_written(needs.memory_mib)} of memory (it has {about(host.memory_mib)})")
    if host.disk_mib and needs.disk_mib > host.disk_mib:
        missing.append(f"{_written(needs.disk_mib)} of disk (it has {about(host.disk_mib)})")
    if not missing:
        return ""
    return f"The Docker Engine's machine does not have what the job asks for: {', '.join(missing)}."


def _written(mib: int) -> str:
    """As `.gpurun.yml` writes it: 1GB is 1,024MB."""
    return f"{mib}MB" if mib % 1024 else f"{mib // 1024}GB"


def about(mib: int) -> str:
    """In the same units, rounded down: what is shown is there."""
    return f"{mib}MB" if mib < 1024 else f"{mib * 10 // 1024 / 10:g}GB"


def environment(launch: Launch) -> dict[str, str]:
    """What boot script and agent read. The agent takes all of it out of the job's environment."""
    return {
        "GPURUN_ATTEMPT": launch.attempt_id,
        "GPURUN_DEADLINE": str(int(launch.hard_deadline.timestamp())),
        "GPURUN_SHA256": launch.agent_sha256,
        "GPURUN_AGENT": AGENT_PATH,
        "GPURUN_UPLINK": _seen_from_inside(launch.uplink),
        "GPURUN_CLAIM": launch.claim_token.get_secret_value(),
        **launch.env,
    }


def _seen_from_inside(uplink: Uplink) -> str:
    return f"unix:{UPLINK_PATH}/bot.sock" if uplink.kind == "unix" else uplink.address


def labels(launch: Launch, watch: str) -> dict[str, str]:
    """For people with `docker ps`, for `list_owned`, and for the host watchdog whose mark `watch` is."""
    return {
        LABEL_ATTEMPT: launch.attempt_id,
        **({LABEL_WATCH: watch} if watch else {}),
        LABEL_INSTALL: launch.install,
        "gpurun.name": launch.name,
        "gpurun.deadline": str(int(launch.hard_deadline.timestamp())),
        "gpurun.image": str(launch.image),
    }


def create_container(api: APIClient, launch: Launch, limits: Limits, *, network: str, watch: str = "") -> str:
    """One request; the id. Vendor errors pass."""
    from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

    mounts = []
    if launch.uplink.kind == "unix":
        mounts.append(Mount(UPLINK_PATH, launch.uplink.address, type="bind", read_only=True))
    if launch.weights:
        mounts.append(Mount(HUB_PATH, launch.weights, type="bind", read_only=True))
    if launch.layer is not None:
        taken = launch.layer.layer is not None
        mark = {LABEL_SHELF: launch.layer.shelf}
        mounts.append(Mount(LAYER_PATH, launch.layer.volume, type="volume", read_only=taken, labels=mark))
    gpus = [DeviceRequest(count=launch.needs.gpus, capabilities=[["gpu"]])] if launch.needs.gpus else None
    memory_bytes = limits.memory_mib * 1024 * 1024
    host_config = api.create_host_config(
        network_mode=network,
        mounts=mounts,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        privileged=False,
        pids_limit=PIDS_LIMIT,
        ipc_mode="private",
        ulimits=[Ulimit(name="core", soft=0, hard=0)],  # where a dump goes is the host's affair
        mem_limit=memory_bytes,
        memswap_limit=memory_bytes,
        nano_cpus=int(limits.cpus * 1e9) or None,
        shm_size=limits.shm_mib * 1024 * 1024,
        device_requests=gpus,
        restart_policy={"Name": "no"},
        log_config=LogConfig(type=LogConfig.types.JSON, config=KEPT_LOG),
        init=False,
    )
    made = api.create_container(
        ready_name(launch),
        name=launch.name,
        entrypoint=["/bin/sh", BOOT_PATH],
        working_dir=WORK_PATH,
        environment=environment(launch),
        labels={**labels(launch, watch), **({LABEL_DISK: str(limits.disk_mib)} if limits.disk_mib else {})},
        host_config=host_config,
        healthcheck={"test": ["NONE"]},
    )
    return str(made["Id"])


def name_of(item: Mapping[str, Any]) -> str:
    """Of one entry of the container list."""
    return str(item["Names"][0]).lstrip("/")


def install_of(item: Mapping[str, Any]) -> str:
    """Whose it is, of one entry of the container list."""
    return str((item.get("Labels") or {}).get(LABEL_INSTALL, ""))


def owned_from_list(item: Mapping[str, Any]) -> Owned:
    """One entry of the container list."""
    code = _EXITED.match(item.get("Status", ""))
    return Owned(
        ref=item["Id"],
        name=name_of(item),
        state=_STATES.get(item["State"], InstanceState.UNKNOWN),
        detail=item.get("Status", ""),
        exit_code=int(code.group(1)) if code else None,
        created_at=datetime.fromtimestamp(item["Created"], UTC),
    )


def owned_from_inspect(item: Mapping[str, Any]) -> Owned:
    """The long form. A container that could not be started is an error, not one that still boots."""
    state = item["State"]
    said = _STATES.get(state["Status"], InstanceState.UNKNOWN)
    ended = state["Status"] in {"exited", "dead"}
    detail = state.get("Error", "") or ("a process was killed for memory" if state.get("OOMKilled") else "")
    return Owned(
        ref=item["Id"],
        name=item["Name"].lstrip("/"),
        state=InstanceState.ERROR if state.get("Error") and said is InstanceState.BOOTING else said,
        detail=detail or state["Status"],
        exit_code=int(state["ExitCode"]) if ended else None,
        created_at=datetime.fromisoformat(item["Created"]),
    )
