"""Jobs on one Docker Engine. The price is what the operator declares; the engine has no bill."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field

from gpurun.domain.build import Building, BuildPlan
from gpurun.domain.errors import Bug, CreateUnknown, NotYetDestroyed, ProviderRefused
from gpurun.domain.ids import ImageRef
from gpurun.domain.offer import ChargeLine, Isolation, Launch, Offer, Owned, Preparation
from gpurun.domain.plan import Resources
from gpurun.domain.platform import platform_of_machine
from gpurun.providers.docker import container
from gpurun.providers.docker.builds import BuildHost, DockerBuilds
from gpurun.providers.docker.container import Host
from gpurun.providers.docker.disk import DiskWatch, Space, limit_for, space
from gpurun.providers.docker.engine import Engine, never_sent, status_of, translated, vendor_errors, words
from gpurun.providers.docker.fence import Fence, NotFenced
from gpurun.providers.docker.network import ensure_network, network_of
from gpurun.providers.docker.pull import Pulls
from gpurun.providers.docker.ready_image import (
    is_there,
    make_ready,
    name_on_engine,
    platform_of_image,
    ready_name,
)
from gpurun.providers.docker.watchdog import HostWatchdog, Pace

if TYPE_CHECKING:
    from docker.api.client import APIClient

HOST_CACHE_S = 60.0
SEEN_S = 60.0
"""How long an image or a network that was there is taken to be there still. Create notices when it is not."""
BOOT_TIMEOUT_S = 120
"""The image is there before create; what is left is the start of a container and of the agent."""
LAST_LINES = 1000
"""The engine can only be asked for lines. A line is at most 16 KiB there, so that this is at most 16 MiB."""
KEPT_BYTES = 32 * 1024 * 1024
"""What it keeps at all of one container (`container.KEPT_LOG`)."""
_HOST_FAULTS = (
    "nvidia-container-cli",
    "nvml",
    "no space left",
    "cannot allocate memory",
    "could not select device driver",
)


log = structlog.get_logger()


class DockerConfig(BaseModel):
    """Settings of the local engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    docker_host: str = ""
    """Empty: what `DOCKER_HOST` says, else the default socket."""
    usd_per_hour: Decimal = Field(default=Decimal(0), ge=0)
    """Declared price of an hour of one run."""
    max_runs: int = Field(default=2, ge=1)
    """Runs that share the machine; a job that does not say how much memory it needs gets this part of it."""
    disk_mib: int = Field(default=0, ge=0)
    """Disk of a job that does not say how much it needs; 0: an equal part of 90 % of what is free when it starts."""
    min_free_mib: int = Field(default=2048, ge=0)
    """With less free disk than this no run starts, and the one that uses most of it is ended. 0: never."""
    network: str = "gpurun-jobs"
    """Of jobs; that of untrusted ones is called after it."""
    allow_untrusted: bool = False
    """Whether code that nobody with write access wrote may run on this machine."""
    host_ports: tuple[int, ...] = ()
    """TCP ports of the engine's machine that jobs may reach; untrusted ones never."""
    notes_folder: Path | None = None
    """Where processes of this machine tell each other that the packet filter is as it should be. None: nowhere."""
    watchdog_folder: Path | None = None
    """Where the host watchdog has its lock and its log. None: there is none."""
    builds_folder: Path | None = None
    """For the contexts of builds on their way, and the locks of builds. None: other processes may build the same."""


class DockerProvider:
    """`ports.provider.Provider`, `Prepares`, `Builds`, `HasImages`, `MountsWeights`, `KeepsLayers`, `SaysPlatform`,
    `SaysWhyNot`.
    """

    name = "docker"
    mounts_weights: Literal[True] = True
    listed_within_s = 0.0
    observe_every_s = 2.0
    """It is on this machine or one hop away, and a list costs it a millisecond."""
    config_model = DockerConfig

    def __init__(
        self, config: DockerConfig, *, monotonic: Callable[[], float] = time.monotonic, pace: Pace | None = None
    ) -> None:
        self._config = config
        self._monotonic = monotonic
        self._engine = Engine(config.docker_host)
        self._pulls = Pulls(self._engine, monotonic)
        self._seen: dict[str, float] = {}
        """Names of images and networks, and when the engine last had them."""
        self._disks = DiskWatch(self._engine, monotonic, keep_free_mib=config.min_free_mib)
        self._host: tuple[float, Host] | None = None
        self._fence = Fence(monotonic, host_ports=config.host_ports, notes=config.notes_folder)
        self._builds = DockerBuilds(
            self._engine,
            monotonic,
            BuildHost(
                limits=self._limits,
                ready=self._network,
                space=lambda api: space(self._read_host(api).engine_folder),
                min_free_mib=config.min_free_mib,
                folder=config.builds_folder,
            ),
        )
        self._watchdog = HostWatchdog(config.watchdog_folder, pace) if config.watchdog_folder else None

    async def offers(self, need: Resources) -> tuple[Offer, ...]:
        host = await self._engine.safe(self._read_host, to="describe its machine")
        if not container.fits(need, host):
            return ()
        self._require_disk(need, space(host.engine_folder))
        return (
            Offer(
                provider=self.name,
                id="local",
                label="local Docker, NVIDIA GPU" if need.gpus else "local Docker",
                usd_per_hour_micro=int(self._config.usd_per_hour * 1_000_000),
                declared=True,
                gpu="nvidia" if need.gpus else "",
                boot_timeout_s=BOOT_TIMEOUT_S,
            ),
        )

    async def why_never(self, need: Resources) -> str | None:
        host = await self._engine.safe(self._read_host, to="describe its machine")
        return container.lacks(need, host) or None

    async def platform(self) -> str:
        return (await self._engine.safe(self._read_host, to="describe its machine")).platform

    async def platform_of(self, image: ImageRef) -> str | None:
        name = name_on_engine(image)
        return await self._engine.safe(lambda api: platform_of_image(api, name), to="look for the image")

    async def prepare(self, launch: Launch, *, wait_s: float) -> Preparation:
        self._require_allowed(launch)
        preparation = await self._pulls.prepare(launch, wait_s=wait_s)
        if preparation.ready:
            self._seen[ready_name(launch)] = self._monotonic()
        return preparation

    async def build(
        self, launch: Launch, build: BuildPlan, context: Callable[[], AsyncGenerator[bytes, None]], *, wait_s: float
    ) -> Building:
        self._require_allowed(launch)
        return await self._builds.build(launch, build, context, wait_s=wait_s)

    async def tidy_builds(self) -> None:
        await self._builds.tidy()

    async def create(self, launch: Launch) -> str:
        self._require_allowed(launch)
        try:
            return await self._engine.call(lambda api: self._create(api, launch))
        except vendor_errors() as exc:  # from connecting: `_create` translates its own
            raise ProviderRefused(f"Docker could not be asked to create: {words(exc)}", kind="capacity") from exc

    async def destroy(self, ref: str) -> None:
        try:
            await self._engine.call(lambda api: api.remove_container(ref, force=True, v=True))
        except vendor_errors() as exc:
            if is_gone(exc):
                return
            status = status_of(exc)
            if status is not None and status not in {401, 403}:
                raise NotYetDestroyed(f"Docker has not removed {ref[:12]}: {words(exc)}") from exc
            raise translated(exc, to=f"remove {ref[:12]}") from exc

    async def list_owned(self, prefix: str) -> tuple[Owned, ...]:
        found = await self._engine.safe(lambda api: self._list(api, prefix), to="list containers")
        return tuple(found)

    async def describe(self, ref: str) -> Owned | None:
        try:
            found = await self._engine.call(lambda api: api.inspect_container(ref))
        except vendor_errors() as exc:
            if is_gone(exc):
                return None
            raise translated(exc, to=f"describe {ref[:12]}") from exc
        return container.owned_from_inspect(found)

    async def charges(self, ref: str) -> tuple[ChargeLine, ...]:
        return ()

    async def logs(self, ref: str, *, max_bytes: int) -> bytes:
        try:
            return await self._engine.call(lambda api: _last_output(api, ref, max_bytes))
        except vendor_errors() as exc:
            if is_gone(exc):
                return b""
            raise translated(exc, to=f"read the output of {ref[:12]}") from exc

    async def layer_volumes(self, shelf: str) -> tuple[str, ...]:
        mark = f"{container.LABEL_SHELF}={shelf}"
        told = await self._engine.safe(lambda api: api.volumes(filters={"label": mark}), to="list volumes")
        return tuple(str(one["Name"]) for one in told.get("Volumes") or ())

    async def remove_layers(self, volumes: Sequence[str]) -> None:
        await self._engine.safe(lambda api: _remove_volumes(api, volumes), to="remove volumes")

    async def close(self) -> None:
        self._builds.close()
        self._disks.close()
        await self._engine.close()

    def _read_host(self, api: APIClient) -> Host:
        if self._host is None or self._monotonic() - self._host[0] > HOST_CACHE_S:
            said = api.info()
            folder = said.get("DockerRootDir", "")
            disk = space(folder)
            host = Host(
                cpus=said["NCPU"],
                memory_mib=said["MemTotal"] // 2**20,
                gpus="nvidia" in said.get("Runtimes", {}),
                disk_mib=disk.total_mib if disk else 0,
                engine_folder=folder,
                platform=platform_of_machine(said.get("OSType", ""), said.get("Architecture", "")),
            )
            self._host = (self._monotonic(), host)
        return self._host[1]

    def _list(self, api: APIClient, prefix: str) -> list[Owned]:
        """In a thread. What the containers use of the disk comes with it, as far as it is known."""
        everybody = _all_of_ours(api)
        found = [item for item in everybody if container.name_of(item).startswith(prefix)]
        if not found:
            return []
        self._watch()  # also for those of a bot before us, or of a watchdog that somebody killed
        # the prefix may be one whole name: what is known of the others must not be forgotten for that
        installs = {container.install_of(item) for item in found}
        mine = [item for item in everybody if container.install_of(item) in installs]
        uses = self._disks.look(mine, self._read_host(api).engine_folder)
        return [replace(container.owned_from_list(item), disk=uses.get(item["Id"])) for item in found]

    def _require_disk(self, need: Resources, disk: Space | None) -> None:
        """Raises ProviderRefused while the disk is too full; it may have room later."""
        if disk is None or disk.free_mib >= need.disk_mib + self._config.min_free_mib:
            return
        asked = f"the job asks for {container.about(need.disk_mib)}, and " if need.disk_mib else ""
        raise ProviderRefused(
            f"The disk of the Docker Engine's machine has {container.about(disk.free_mib)} free: {asked}"
            f"{container.about(self._config.min_free_mib)} must stay free.",
            kind="capacity",
        )

    def _watch(self) -> str:
        """The mark of the host watchdog, which is running then; empty without one."""
        if self._watchdog is None:
            return ""
        self._watchdog.ensure(self._engine.socket_path)
        return self._watchdog.mark

    def _create(self, api: APIClient, launch: Launch) -> str:
        """A numbered story, in a thread: 1 what create needs, 2 the one create, 3 start."""
        limits = self._before_create(api, launch)
        try:
            network, watch = network_of(self._config.network, launch.isolation), self._watch()
            try:
                ref = container.create_container(api, launch, limits, network=network, watch=watch)
            except vendor_errors() as exc:
                if not (status_of(exc) == 404 and self._forget(ready_name(launch))):
                    raise
                self._before_create(api, launch)  # "no such image": nothing was made, and it can be made ready again
                ref = container.create_container(api, launch, limits, network=network, watch=watch)
        except vendor_errors() as exc:
            found = _after_failed_create(api, launch, exc)
            ref = str(found["Id"])
            if found["State"]["Status"] != "created":
                return ref
        try:
            self._start(api, ref, launch)
        except vendor_errors() as exc:
            raise _undo(api, ref, exc) from exc
        return ref

    def _start(self, api: APIClient, ref: str, launch: Launch) -> None:
        try:
            api.start(ref)
        except vendor_errors() as exc:
            if not (status_of(exc) == 404 and self._forget(network_of(self._config.network, launch.isolation))):
                raise
            self._network(api, launch)
            api.start(ref)

    def _before_create(self, api: APIClient, launch: Launch) -> container.Limits:
        """Nothing is made for the attempt here, so every trouble is a refusal and never a doubt."""
        try:
            self._network(api, launch)
            self._see(ready_name(launch), lambda: _ensure_ready(api, launch))
            host, config = self._read_host(api), self._config
            disk_mib = limit_for(
                launch.needs, space(host.engine_folder), default_mib=config.disk_mib, max_runs=config.max_runs
            )
            return replace(self._limits(api, launch.needs), disk_mib=disk_mib)
        except vendor_errors() as exc:
            raise ProviderRefused(f"Docker could not make ready for the run: {words(exc)}", kind="capacity") from exc

    def _network(self, api: APIClient, launch: Launch) -> str:
        """The name of the launch's network, which is there and fenced. Raises: ProviderRefused."""
        name = network_of(self._config.network, launch.isolation)
        if launch.isolation is Isolation.UNTRUSTED:
            self._seen.pop(name, None)
        self._see(name, lambda: self._fenced(api, name, launch.isolation))
        return name

    def _fenced(self, api: APIClient, name: str, isolation: Isolation) -> None:
        network = ensure_network(api, name)
        try:
            self._fence.ensure(api, network, isolation)
        except NotFenced as exc:
            if isolation is Isolation.UNTRUSTED:
                raise ProviderRefused(
                    "Code of a fork does not run on this Docker Engine, because private networks cannot be closed to "
                    f"it: {exc}. Whoever runs gpurun finds what that needs under docs/guides/serve.md.",
                    kind="invalid",
                ) from exc
            log.warning("jobs_not_fenced", network=name, why=str(exc))

    def _require_allowed(self, launch: Launch) -> None:
        """Raises ProviderRefused for what may not run here, before an image is pulled or built for it."""
        if launch.isolation is Isolation.STANDARD:
            return
        if not self._config.allow_untrusted:
            raise ProviderRefused(
                "Code of a fork does not run on the bot's own Docker Engine unless whoever runs gpurun allows it with "
                "GPURUN_ALLOW_UNTRUSTED_LOCAL=true.",
                kind="invalid",
            )
        if launch.login is not None or (launch.layer is not None and launch.layer.layer is None):
            raise Bug(f"{launch.name} is untrusted, and has a login or a layer that it could write")

    def _limits(self, api: APIClient, needs: Resources) -> container.Limits:
        return container.limits_for(needs, self._read_host(api), max_runs=self._config.max_runs)

    def _see(self, name: str, ensure: Callable[[], None]) -> None:
        """`ensure`, unless `name` was there lately."""
        seen_at = self._seen.get(name)
        if seen_at is None or self._monotonic() - seen_at > SEEN_S:
            ensure()
            self._seen[name] = self._monotonic()

    def _forget(self, name: str) -> bool:
        """True when it was only taken to be there."""
        return self._seen.pop(name, None) is not None


def is_gone(exc: BaseException) -> bool:
    """A positive "there is none": the engine's own words, because a proxy in between answers 404 too."""
    return status_of(exc) == 404 and "no such container" in words(exc).lower()


def _all_of_ours(api: APIClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.containers(all=True, filters={"label": container.LABEL_ATTEMPT})
    return found


def _remove_volumes(api: APIClient, volumes: Sequence[str]) -> None:
    """404: it is gone; 409: a container has it."""
    for name in volumes:
        try:
            api.remove_volume(name)
        except vendor_errors() as exc:
            if status_of(exc) not in {404, 409}:
                raise


def _last_output(api: APIClient, ref: str, max_bytes: int) -> bytes:
    tail: Literal["all"] | int = "all" if max_bytes >= KEPT_BYTES else LAST_LINES
    said: bytes = api.logs(ref, stdout=True, stderr=True, stream=False, follow=False, tail=tail)
    return said[max(0, len(said) - max_bytes) :]


def _ensure_ready(api: APIClient, launch: Launch) -> None:
    """Makes it when `prepare` was not asked, or somebody pruned images since."""
    if is_there(api, ready_name(launch)):
        return
    if not is_there(api, name_on_engine(launch.image)):
        raise ProviderRefused(f"The image {launch.image} is not on the Docker Engine any more.", kind="capacity")
    make_ready(api, launch)


def _after_failed_create(api: APIClient, launch: Launch, exc: Exception) -> Mapping[str, Any]:
    """The container as the engine describes it, when it exists and is this attempt's.

    Docker creates before it answers, so an answered error is final, and a look by name is a clear answer.
    Raises: ProviderRefused when nothing was made, CreateUnknown otherwise.
    """
    status = status_of(exc)
    if never_sent(exc):
        raise ProviderRefused(f"Docker could not create the container: {words(exc)}", kind="capacity") from exc
    if status is None:
        raise CreateUnknown(f"Docker gave no answer to create: {words(exc)}") from exc
    try:
        found: Mapping[str, Any] = api.inspect_container(launch.name)
    except vendor_errors() as look:
        if is_gone(look):
            raise ProviderRefused(f"Docker refused the container: {words(exc)}", kind=_kind(exc)) from exc
        raise CreateUnknown(f"Docker could not create the container: {words(exc)}") from exc
    if (found["Config"].get("Labels") or {}).get(container.LABEL_ATTEMPT) != launch.attempt_id:
        raise CreateUnknown(f"another container is called {launch.name}", ref=found["Id"]) from exc
    return found


def _undo(api: APIClient, ref: str, exc: Exception) -> ProviderRefused | CreateUnknown:
    """A container that did not start goes again; only when that is certain nothing was made."""
    if status_of(exc) is None:
        return CreateUnknown(f"Docker gave no answer to start: {words(exc)}", ref=ref)
    try:
        api.remove_container(ref, force=True, v=True)
    except vendor_errors() as trouble:
        if not is_gone(trouble):
            return CreateUnknown(f"Docker could not start the container nor remove it: {words(exc)}", ref=ref)
    return ProviderRefused(f"Docker could not start the container: {words(exc)}", kind=_kind(exc))


def _kind(exc: Exception) -> Literal["invalid", "capacity"]:
    """`invalid`: the image or the request. `capacity`: this host, now; another one may do."""
    status, said = status_of(exc), words(exc).lower()
    host_fault = any(sign in said for sign in _HOST_FAULTS)
    return "invalid" if status is not None and 400 <= status < 500 and not host_fault else "capacity"
