"""Settings become adapters, and adapters a house that serves or runs. The only module that names concrete ones."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import anyio
import structlog
from pydantic import SecretStr

from gpurun.adapters.blobs import FolderBlobs
from gpurun.adapters.clock import SystemChance, SystemClock
from gpurun.adapters.git import GitPast
from gpurun.adapters.hub import HuggingFaceHub
from gpurun.adapters.images import NearestImages, RegistryImages, SilentImages
from gpurun.adapters.layers import FileLayers, LayerShelf
from gpurun.adapters.local import LocalForge
from gpurun.adapters.secrets import MemorySecrets
from gpurun.adapters.store import PostgresStore, SqliteStore
from gpurun.adapters.vault import GivenVault, KeyFile, StoredVault
from gpurun.domain.errors import SecretRefused, UserError
from gpurun.domain.pace import budget_of
from gpurun.domain.secret import MIN_SECRET_CHARS
from gpurun.domain.stream import ArtifactLimits, StreamName
from gpurun.flow import failpoints
from gpurun.flow.engine import AgentBundle, EngineServices, handlers, know_providers
from gpurun.flow.facts import Links
from gpurun.flow.forget_artifacts import forget_for_ever
from gpurun.flow.gate import GateKeeper
from gpurun.flow.intake import Intake
from gpurun.flow.keep_builds import tidy_builds_for_ever
from gpurun.flow.keep_cache import keep_cache_for_ever
from gpurun.flow.keep_layers import keep_layers_for_ever
from gpurun.flow.keep_secrets import keep_secrets_for_ever
from gpurun.flow.publish import Publisher
from gpurun.flow.seal import seal_for_ever
from gpurun.flow.worker import Handler, Worker
from gpurun.http.agent_api import AgentApi
from gpurun.http.maskers import Maskers
from gpurun.http.services import HttpServices
from gpurun.http.uplink import UnixUplinks
from gpurun.ports.bytes import Git, Images
from gpurun.ports.clock import Chance, Clock
from gpurun.ports.forge import Forge
from gpurun.ports.provider import MountsWeights, Provider
from gpurun.ports.secrets import Secrets
from gpurun.ports.store import Kind, Store
from gpurun.ports.vault import Vault
from gpurun.provider_kit import registry
from gpurun.provider_kit.agent_zip import agent_zip
from gpurun.provider_kit.boot import boot_script
from gpurun.settings import Settings
from gpurun.telemetry.shown import Hide

SERVER_STATE = Path("/var/lib/gpurun")
MIB = 1024 * 1024

log = structlog.get_logger()


class App(Protocol):
    """Who we are at the forge."""

    async def bot_login(self) -> str:
        """Raises ForgeUnavailable, ForgeRefused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """Everything of one process, opened."""

    store: Store
    install_id: str
    clock: Clock
    chance: Chance
    http: HttpServices
    worker: Worker
    uplinks: UnixUplinks
    links: Links
    secrets: Secrets
    """What must not be shown; grows."""
    hide: Hide
    providers: Mapping[str, Provider]
    state: Path
    """The folder of what is this house's alone."""
    keep_artifacts: timedelta
    """How long a server keeps the bytes of artifacts."""
    app: App | None = None
    """None for a local run, which is nobody at a forge."""

    async def live(self, stop: anyio.Event) -> None:
        """Carries out what is due until `stop`; running jobs go on without us."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(seal_for_ever, self.store, self.clock)
            tasks.start_soon(self.uplinks.keep, self.store, self.clock)
            if self.app is not None:  # what a local run is given ends with its process
                tasks.start_soon(keep_secrets_for_ever, self.store, self.clock, self.http.vault)
                tasks.start_soon(keep_cache_for_ever, self.store, self.clock, self.http.hub)
                providers = tuple(self.providers.values())
                tasks.start_soon(keep_layers_for_ever, self.store, self.clock, self.http.layers, providers)
                tasks.start_soon(tidy_builds_for_ever, providers, self.clock)
                tasks.start_soon(forget_for_ever, self.store, self.http.blobs, self.clock, self.keep_artifacts)
            await self.worker.run(stop)
            tasks.cancel_scope.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Where a house keeps what. Caches are shared between runs, state is not."""

    state: Path
    cache: Path

    def made(self) -> Folders:
        """They exist afterwards, for their owner only. Raises UserError."""
        try:
            # the cache first: it may be the parent, and parents are made for everybody
            for folder in (self.cache, self.state, *self._private()):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder in self._private():
                folder.chmod(0o700)
        except OSError as error:
            raise UserError(
                f"The state folder {self.state} cannot be made: {error.strerror}.",
                hint="Set GPURUN_STATE_DIR to a folder that this user may write to.",
            ) from error
        return self

    def _private(self) -> tuple[Path, ...]:
        """Private code, weights and results, also where the folder around them was there before and is open to all."""
        return self.cache / "git", self.cache / "hub", self.state / "blobs", self.state / "up"


def server_folders(settings: Settings) -> Folders:
    """Everything in one folder."""
    state = settings.state_dir or SERVER_STATE
    return Folders(state=state, cache=state)


def local_home(settings: Settings) -> Path:
    """Where all `gpurun run` of this user keep their caches and, under `runs/`, their state."""
    return settings.state_dir or Path(os.getenv("XDG_STATE_HOME") or Path.home() / ".local/state") / "gpurun"


def key_file(settings: Settings, folders: Folders) -> Path:
    """Of the secrets in the database of that state folder."""
    return settings.secrets_key_file or folders.state / "secrets.key"


@asynccontextmanager
async def open_server(settings: Settings) -> AsyncIterator[House]:
    """The house of `gpurun serve`."""
    from gpurun.adapters.github import GitHubForge  # a second of imports that `gpurun run` does without

    require_app(settings)
    key = private_key(settings)
    folders = server_folders(settings).made()
    clock = SystemClock()
    forge = GitHubForge(
        app_id=settings.github_app_id,
        private_key=key,
        api_url=settings.github_api_url,
        git_url=settings.github_url,
        clock=clock,
        submodule_hosts=frozenset(filter(None, (host.strip().lower() for host in settings.submodule_hosts.split(",")))),
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(forge.close)
        forge.require_key()
        house = await open_house(stack, settings, folders, forge)
        house.secrets.register(key)
        yield replace(house, app=forge)


@asynccontextmanager
async def open_local(
    settings: Settings, forge: LocalForge, *, state: Path | None = None, given: Mapping[str, SecretStr] | None = None
) -> AsyncIterator[House]:
    """The house of one `gpurun run`, with a state folder of its own or that of a run that is to be ended.

    `given`: values of secrets, by name; they stay in memory. A server's database is not its own: it would carry out the
    server's work.
    """
    settings = settings.model_copy(update={"database_url": SecretStr("")})
    home = local_home(settings)
    folders = Folders(state=state or home / "runs" / SystemChance().ulid(), cache=home).made()
    async with AsyncExitStack() as stack:
        yield await open_house(stack, settings, folders, forge, given=given or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What says where names point to now."""

    hub: HuggingFaceHub
    images: Images
    git: Git
    clock: Clock


@asynccontextmanager
async def open_sources(settings: Settings) -> AsyncIterator[Sources]:
    """For commands that look names up and run nothing. The hub's small files go to the cache of `gpurun run`.

    Raises UserError when that folder cannot be made.
    """
    home = local_home(settings)
    Folders(state=home, cache=home).made()
    async with AsyncExitStack() as stack:
        clock = SystemClock()
        hub = open_hub(settings, home / "hub", clock, at_terminal=True)
        stack.push_async_callback(hub.close)
        images = RegistryImages(at_terminal=True)
        stack.push_async_callback(images.close)
        yield Sources(hub=hub, images=images, git=GitPast(home / "git"), clock=clock)


async def open_house(
    stack: AsyncExitStack,
    settings: Settings,
    folders: Folders,
    forge: Forge,
    *,
    given: Mapping[str, SecretStr] | None = None,
) -> House:
    """Opens part by part; `stack` closes them in the other order. `given`: what runs get instead of kept secrets."""
    arm_failpoint(settings)
    clock, chance = SystemClock(), SystemChance()
    store = await stack.enter_async_context(open_store(settings, folders, clock, chance))
    git = GitPast(folders.cache / "git")
    hub = open_hub(settings, folders.cache / "hub", clock, at_terminal=given is not None)
    stack.push_async_callback(hub.close)
    layers = FileLayers(layer_shelf(settings, folders), clock)
    images = RegistryImages(at_terminal=given is not None)
    stack.push_async_callback(images.close)
    secrets = (settings.webhook_secret, settings.webhook_secret_old)
    memory = keep_secret(MemorySecrets(), settings)
    maskers = Maskers(memory, store.install_secret)
    keys = KeyFile(key_file(settings, folders))
    vault: Vault = StoredVault(store, keys, memory) if given is None else GivenVault(given, memory)
    providers = await open_providers(stack, settings, folders)
    http = HttpServices(
        store=store,
        git=git,
        hub=hub,
        layers=layers,
        blobs=FolderBlobs(folders.state / "blobs"),
        clock=clock,
        maskers=maskers,
        vault=vault,
        install_secret=store.install_secret,
        webhook_secrets=tuple(secret for secret in secrets if secret.get_secret_value()),
        public_url=settings.public_url.rstrip("/"),
        log_quota_bytes=settings.log_quota_mib * MIB,
        mounting=frozenset(name for name, one in providers.items() if isinstance(one, MountsWeights)),
        artifacts=ArtifactLimits(file_bytes=settings.artifact_mib * MIB, total_bytes=settings.artifacts_mib * MIB),
    )
    api = AgentApi(http)
    uplinks = UnixUplinks(api, folder=folders.state / "up", chance=chance, take=api.appends.at_once)
    stack.push_async_callback(uplinks.aclose)
    agent = agent_zip(folders.cache / "agent")
    services = EngineServices(
        store=store,
        clock=clock,
        chance=chance,
        git=git,
        hub=hub,
        layers=layers,
        images=(NearestImages if isinstance(forge, LocalForge) else SilentImages)(images, providers.values()),
        forge=forge,
        uplinks=uplinks,
        providers=providers,
        install_id=store.install_id,
        install_secret=store.install_secret,
        agent=AgentBundle(path=str(agent.path), sha256=agent.sha256, boot_script=boot_script()),
        slots={"docker": settings.docker_max_runs},
        refuse_untrusted=frozenset() if settings.allow_untrusted_local else frozenset({"docker"}),
        vault=vault,
        masker=http.masker,
        stream_bytes={StreamName.LOG: http.log_quota_bytes, StreamName.METRICS: http.metrics_quota_bytes},
    )
    links = links_of(settings, forge)
    hide = Hide(memory)
    budget = budget_of(settings.github_writes_per_hour)
    steps: dict[Kind, Handler] = {
        Kind.INBOX: Intake(store=store, forge=forge, chance=chance, budget=budget, links=links),
        Kind.GATE: GateKeeper(store=store, forge=forge, chance=chance, budget=budget),
        Kind.PUBLICATION: Publisher(store=store, forge=forge, links=links, hide=hide, learn=vault.learn, budget=budget),
        **handlers(services),
    }
    await uplinks.look(store)
    await know_providers(services)
    worker = Worker(store, clock, chance, steps, limit=settings.workers)
    return House(
        store=store,
        install_id=store.install_id,
        clock=clock,
        chance=chance,
        http=http,
        worker=worker,
        uplinks=uplinks,
        links=links,
        secrets=memory,
        hide=hide,
        providers=providers,
        state=folders.state,
        keep_artifacts=timedelta(days=settings.artifacts_days),
    )


def layer_shelf(settings: Settings, folders: Folders) -> LayerShelf:
    """Records of layers in the cache of these folders."""
    return LayerShelf(folders.cache / "layers", settings.setup_layers_mib * MIB)


def open_hub(settings: Settings, folder: Path, clock: Clock, *, at_terminal: bool) -> HuggingFaceHub:
    """With its cache in that folder."""
    return HuggingFaceHub(
        settings.hub_url,
        settings.hub_token,
        folder,
        clock,
        at_terminal=at_terminal,
        max_cache_bytes=settings.weights_cache_mib * MIB or None,
    )


def open_store(settings: Settings, folders: Folders, clock: Clock, chance: Chance) -> SqliteStore | PostgresStore:
    """By URL, else the file of this house."""
    url = database_url(settings)
    if url:
        return PostgresStore(url, chance=chance)
    return SqliteStore(folders.state / "gpurun.db", clock=clock, chance=chance)


def database_url(settings: Settings) -> str:
    """Empty for a file of our own. Raises UserError for a database that we do not know."""
    url = settings.database_url.get_secret_value()
    if url and not _is_postgres(url):
        raise UserError(
            "GPURUN_DATABASE_URL is no address of a database that gpurun knows.",
            hint="It looks like postgresql://user:password@host/name. Without it a SQLite file is used.",
        )
    return url


def _is_postgres(url: str) -> bool:
    try:
        parts = urlsplit(url)
        known = url.lower().startswith(("postgresql://", "postgres://"))
        return known and parts.port != 0  # an odd port is a ValueError
    except ValueError:
        return False


async def open_providers(stack: AsyncExitStack, settings: Settings, folders: Folders) -> Mapping[str, Provider]:
    """Those that are configured. Raises UserError when one cannot be used."""
    opened: dict[str, Provider] = {}
    for name, values in provider_values(settings, folders).items():
        provider = registry.open_provider(name, values)
        if isinstance(provider, registry.Broken):
            raise UserError(f"The provider {name} cannot be used: {provider.reason}")
        opened[name] = provider
        stack.push_async_callback(provider.close)
    return opened


def provider_values(settings: Settings, folders: Folders) -> Mapping[str, Mapping[str, object]]:
    """What each provider is configured with. The local Docker Engine is the default and always there.

    All local runs of a user share one watchdog, which therefore lives beside their caches.
    """
    return {
        "docker": {
            "docker_host": settings.docker_host,
            "usd_per_hour": settings.docker_usd_per_hour,
            "max_runs": settings.docker_max_runs,
            "disk_mib": settings.docker_disk_mib,
            "min_free_mib": settings.docker_min_free_mib,
            "allow_untrusted": settings.allow_untrusted_local,
            "host_ports": [int(port) for port in settings.docker_host_ports.split(",") if port],
            "notes_folder": folders.cache / "fence",
            "watchdog_folder": folders.cache / "watchdog",
            "builds_folder": folders.cache / "builds",
        }
    }


def keep_secret(secrets: MemorySecrets, settings: Settings) -> MemorySecrets:
    """The bot's own, from its settings. Raises UserError for one that is too short to be kept out of texts."""
    for name, value in settings:
        if isinstance(value, SecretStr) and value.get_secret_value():
            try:
                secrets.register(value)
            except SecretRefused as refused:
                raise UserError(f"GPURUN_{name.upper()}: {refused.message}", hint=refused.hint) from None
    database = urlsplit(database_url(settings))
    password = unquote(database.password or "")
    # one like the names beside it (`gpurun:gpurun@…/gpurun`) is no secret, and half of what the bot says would be stars
    named = {"gpurun", unquote(database.username or ""), unquote(database.path).strip("/")}
    if len(password.strip()) >= MIN_SECRET_CHARS and password not in named:
        secrets.register(SecretStr(password))
    return secrets


def private_key(settings: Settings) -> SecretStr:
    """The App's key, from its file or the setting. Raises UserError when there is none."""
    file = settings.github_private_key_file
    if file is not None:
        try:
            return SecretStr(file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise UserError(f"The GitHub App's private key {file} cannot be read: {why}.") from error
    if not settings.github_private_key.get_secret_value():
        raise UserError(
            "The GitHub App's private key is not set.", hint="Set GPURUN_GITHUB_PRIVATE_KEY_FILE to its .pem file."
        )
    return settings.github_private_key


def require_app(settings: Settings) -> None:
    """What a server cannot do without. Raises UserError."""
    if settings.github_app_id <= 0:
        raise UserError(
            "The GitHub App's id is not set.", hint="Set GPURUN_GITHUB_APP_ID to the number on the App's settings page."
        )
    if not settings.webhook_secret.get_secret_value():
        raise UserError(
            "The webhook secret is not set, so no delivery could be believed.",
            hint="Set GPURUN_WEBHOOK_SECRET to the secret on the App's settings page.",
        )


def links_of(settings: Settings, forge: Forge) -> Links:
    """A local run has no pages and its commits may exist nowhere else."""
    hub_url = settings.hub_url.rstrip("/")
    if isinstance(forge, LocalForge):
        return Links(hub_url=hub_url)
    return Links(public_url=settings.public_url.rstrip("/"), forge_url=settings.github_url.rstrip("/"), hub_url=hub_url)


def arm_failpoint(settings: Settings) -> None:
    """Only where tests allow it."""
    if settings.failpoint and settings.allow_failpoints:
        log.warning("failpoint_armed", failpoint=settings.failpoint)
        try:
            failpoints.arm_written(settings.failpoint)
        except ValueError as error:
            raise UserError(f"GPURUN_FAILPOINT is wrong: {error}.") from error
