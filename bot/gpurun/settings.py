"""Settings of the server, from `GPURUN_*` environment variables. Only `cli` and `wiring` read them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict


def _web_url(url: str) -> str:
    """Itself. A relative one would end up in links and requests, where nobody sees what is wrong with it."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0  # an odd port: ValueError
    except ValueError:
        good = False
    if not good or any(char.isspace() for char in url):
        raise PydanticCustomError("web_url", "input should be a whole address such as https://your.host")
    return url


def _web_url_or_none(url: str) -> str:
    return _web_url(url) if url else url


WebUrl = Annotated[str, AfterValidator(_web_url)]
WebUrlOrNone = Annotated[str, AfterValidator(_web_url_or_none)]
"""Empty when there is none."""


class Settings(BaseSettings):
    """One place for every default."""

    model_config = SettingsConfigDict(env_prefix="GPURUN_", extra="forbid", frozen=True, use_attribute_docstrings=True)

    state_dir: Path | None = None
    """Database, git mirrors, weights cache, blobs, sockets. Default: `/var/lib/gpurun` for the server, and
    `~/.local/state/gpurun` for `gpurun run`."""
    database_url: SecretStr = SecretStr("")
    """Empty: SQLite in `state_dir`. Else `postgresql://user:password@host/name`."""
    secrets_key_file: Path | None = None
    """The keys of the secrets in the database. Default: `secrets.key` in `state_dir`. Made by the first
    `gpurun secret set`; every server process must see the same file."""
    host: str = "127.0.0.1"
    """Address that `gpurun serve` listens on. A reverse proxy in front of it speaks TLS."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Port that `gpurun serve` listens on. Each process needs its own."""
    public_url: WebUrlOrNone = "http://127.0.0.1:8080"
    """Where people reach this server; links in comments start with it."""

    github_api_url: WebUrl = "https://api.github.com"
    """The REST API; another one for GitHub Enterprise Server."""
    github_url: WebUrl = "https://github.com"
    """Where commits are fetched from, and where links to commits point."""
    submodule_hosts: str = ""
    """Hosts beside GitHub that submodules are fetched from, by https and without a credential; with commas between:
    `gitlab.com,codeberg.org`."""
    github_app_id: int = 0
    """The App's id, a number on its settings page."""
    github_private_key: SecretStr = SecretStr("")
    """The App's private key, PEM text. `github_private_key_file` wins when both are set."""
    github_private_key_file: Path | None = None
    """The App's private key, a `.pem` file."""
    github_writes_per_hour: int = Field(default=400, ge=20)
    """Comments, edits and reactions that one installation of the App may make. GitHub bans an App that makes more than
    500 an hour; a GitHub Enterprise Server may have other limits, or none."""
    webhook_secret: SecretStr = SecretStr("")
    """The App's webhook secret. `gpurun serve` needs one."""
    webhook_secret_old: SecretStr = SecretStr("")
    """Accepted too while a secret is being changed."""

    hub_url: WebUrl = "https://huggingface.co"
    """The model hub."""
    hub_token: SecretStr = SecretStr("")
    """Read token for private and gated models. Stays in the bot."""
    weights_cache_mib: int = Field(default=102400, ge=0)
    """What verified models and data sets may take on the bot's disk; the least recently used go first, and never what a
    live run uses. 0: no limit."""
    setup_layers_mib: int = Field(default=51200, ge=0)
    """What layers of `setup` may take on the Docker Engine's disk; the least recently used go first, and never what a
    live run uses. 0: no limit."""

    docker_host: str = ""
    """Empty: the engine that the docker client finds (`DOCKER_HOST`, else the default socket)."""
    docker_usd_per_hour: Decimal = Field(default=Decimal(0), ge=0)
    """Declared price of an hour on the local engine."""
    docker_max_runs: int = Field(default=2, ge=1)
    """Runs at a time on the local engine, over all processes. A job that does not say how much memory it needs gets an
    equal part of 90 % of it."""
    docker_disk_mib: int = Field(default=0, ge=0)
    """Disk that a job on the local engine may fill if it does not say `resources: {disk: …}`. 0: an equal part of 90 %
    of what is free when it starts."""
    docker_min_free_mib: int = Field(default=2048, ge=0)
    """When less than this is free on the local engine's disk, no run starts there and the one that uses most of the
    disk is ended. 0: never."""
    docker_host_ports: str = Field(default="", pattern=r"^([1-9][0-9]{0,4}(,[1-9][0-9]{0,4})*)?$")
    """TCP ports of the local engine's machine that jobs may reach, with commas between: `5000,3128`. All others are
    closed to them, and all are to code of a fork."""
    allow_untrusted_local: bool = False
    """Lets code of forks, and of authors who may not push, run on the local engine once somebody has approved it:
    beside other jobs, on the machine that has the engine's socket. A container is not a virtual machine: with this the
    host is as safe as its kernel."""

    failpoint: str = ""
    """Tests only: where this process kills itself, or with `:stop` behind the name halts until SIGCONT. Several with
    commas. Ignored without `allow_failpoints`."""
    allow_failpoints: bool = False
    """Tests only: lets `failpoint` act."""

    log_quota_mib: int = Field(default=256, ge=1)
    """Log that is kept of one attempt; the rest is discarded, and the last line says so."""
    artifact_mib: int = Field(default=1024, ge=1)
    """The largest file that is kept as an artifact. What is larger is left out, and told with its name and size."""
    artifacts_mib: int = Field(default=2048, ge=1)
    """Artifacts that are kept of one attempt, together: at most 1,000 files, in the order of the patterns."""
    artifacts_days: int = Field(default=90, ge=1)
    """How long the bytes of artifacts are kept after the end; their names, sizes and hashes stay for ever."""
    workers: int = Field(default=16, ge=1)
    """Steps at a time in this process."""
