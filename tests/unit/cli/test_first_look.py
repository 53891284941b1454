"""What the log of a server says at its start about GitHub and the engine."""

from __future__ import annotations

import os
import signal

import anyio
import pytest
import structlog

from gpurun.adapters.github import GitHubForge
from gpurun.cli.first_look import first_look
from gpurun.cli.serve import _serve
from gpurun.domain.errors import ProviderUnavailable
from gpurun.provider_kit import registry
from gpurun.settings import Settings
from tests.fakes.github.fake import FakeGitHub
from tests.fakes.github.keys import app_key, pem


@pytest.fixture
def github(tmp_path, clock):
    return FakeGitHub(tmp_path / "github", clock=clock)


@pytest.fixture
def forge(github, clock):
    def make(**change):
        settings = {
            "app_id": github.app.id,
            "private_key": github.app.private_key,
            "api_url": github.api_url,
            "git_url": github.git_url,
            "transport": github.transport,
        }
        return GitHubForge(**{**settings, **change}, clock=clock)

    return make


@pytest.fixture
def docker(tmp_path):
    return registry.open_provider(
        "docker", {"docker_host": f"unix://{tmp_path}/nobody.sock", "usd_per_hour": 0, "max_runs": 1}
    )


async def told(app=None, providers=None):
    """The lines of the log, by event."""
    with structlog.testing.capture_logs() as logs:
        await first_look(app, providers or {})
    return {line["event"]: line for line in logs}


async def test_the_apps_login(forge):
    logs = await told(forge())
    assert set(logs) == {"github_app"}
    assert (logs["github_app"]["log_level"], logs["github_app"]["login"]) == ("info", "gpurun[bot]")


async def test_an_app_that_github_does_not_know(forge, github):
    logs = await told(forge(app_id=github.app.id + 1))
    assert set(logs) == {"github_app_refused"}
    refused = logs["github_app_refused"]
    assert refused["log_level"] == "warning"
    assert "GPURUN_GITHUB_APP_ID" in refused["hint"]
    assert "GPURUN_GITHUB_PRIVATE_KEY(_FILE)" in refused["hint"]
    assert "PRIVATE KEY-" not in str(logs)


async def test_github_that_does_not_answer(forge, github):
    github.fail_next("GET", "/app", status=502, times=9)
    assert set(await told(forge())) == {"github_not_reachable"}


async def test_no_engine(docker):
    logs = await told(providers={"docker": docker})
    assert set(logs) == {"provider_not_reachable"}
    line = logs["provider_not_reachable"]
    assert (line["log_level"], line["provider"]) == ("warning", "docker")
    assert "no Docker Engine answers there" in line["error"]
    assert "docs.docker.com/engine/install" in line["hint"]


async def test_an_engine_that_this_user_may_not_use():
    class Forbidden:
        async def offers(self, _):
            raise ProviderUnavailable("Docker could not describe its machine.") from PermissionError("socket")

    logs = await told(providers={"docker": Forbidden()})
    assert "group `docker`" in logs["provider_not_reachable"]["hint"]


async def test_what_nobody_foresaw_is_told_and_ends_nothing():
    class Odd:
        async def offers(self, _):
            raise ZeroDivisionError

    assert set(await told(providers={"odd": Odd()})) == {"first_look_failed"}


async def test_a_server_starts_without_github_and_without_an_engine(tmp_path):
    """It serves, tells of both, and ends when it is told to."""
    awaited, seen = {"serving", "github_not_reachable", "provider_not_reachable"}, set()

    def stop_when_all_was_told(_logger, _method, line):
        before = len(awaited - seen)
        seen.add(line["event"])
        if before and awaited <= seen:
            os.kill(os.getpid(), signal.SIGTERM)
        raise structlog.DropEvent

    structlog.configure(processors=[stop_when_all_was_told])
    settings = Settings(
        state_dir=tmp_path / "server", port=0, github_app_id=1, github_private_key=pem(app_key()),
        webhook_secret="hook-secret", github_api_url="http://127.0.0.1:1", github_url="http://127.0.0.1:1",
    )  # fmt: skip
    with anyio.fail_after(20):
        await _serve(settings)
    assert seen >= {"serving", "stopping", "stopped"}
    assert "github_app" not in seen
