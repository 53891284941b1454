"""Settings of the server, from `GPURUN_*` environment variables. Only `cli` and `wiring` read them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """One place for every default."""

    model_config = SettingsConfigDict(env_prefix="GPURUN_", extra="forbid", frozen=True)

    state_dir: Path | None = None
    """Database, git mirrors, weights cache, blobs, sockets. Default: `/var/lib/gpurun` for the server, and
    `~/.local/state/gpurun` for `gpurun run`."""
    database_url: SecretStr = SecretStr("")
    """Empty: SQLite in `state_dir`. Else `postgresql://user:password@host/name`."""
    host: str = "127.0.0.1"
    port: int = 8080
    public_url: str = "http://127.0.0.1:8080"
    """Where people and instances reach this server; links in comments start with it."""

    github_api_url: str = "https://api.github.com"
    github_url: str = "https://github.com"
    github_app_id: int = 0
    github_private_key: SecretStr = SecretStr("")
    """PEM text."""
    github_private_key_file: Path | None = None
    webhook_secret: SecretStr = SecretStr("")
    webhook_secret_old: SecretStr = SecretStr("")
    """Accepted too while a secret is being changed."""

    hub_url: str = "https://huggingface.co"
    hub_token: SecretStr = SecretStr("")
    """Read token for private models. Stays in the bot."""

    docker_host: str = ""
    """Empty: the engine that the docker client finds (`DOCKER_HOST`, else the default socket)."""
    docker_usd_per_hour: Decimal = Field(default=Decimal(0), ge=0)
    """Declared price of an hour on the local engine."""
    docker_max_runs: int = Field(default=2, ge=1)
    """Runs at a time on the local engine."""

    failpoint: str = ""
    """Tests only: where this process kills itself. Ignored without `allow_failpoints`."""
    allow_failpoints: bool = False

    log_quota_mib: int = Field(default=256, ge=1)
    max_duration_max_s: int = 24 * 3600
    workers: int = Field(default=16, ge=1)
    """Steps at a time in this process."""
