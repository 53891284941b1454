"""How the client is set up."""

from __future__ import annotations

import subprocess
import sys

from pydantic import SecretStr

from gpurun.adapters.github import client
from gpurun.adapters.github.tokens import AppAuth


def test_githubkit_imports_with_the_locked_packages():
    # its own bounds allow a hishel that it cannot be imported with
    subprocess.run([sys.executable, "-c", "import githubkit, gpurun.adapters.github"], check=True, timeout=30)


def test_nothing_is_shared_retried_or_unlimited(clock):
    def make():
        transport = client.SharedTransport(client.open_transport("https://api.github.com"))
        return client.make(AppAuth(1, SecretStr(""), clock), api_url="https://api.github.com", transport=transport)

    one, other = make().config, make().config

    assert one.cache_strategy is not other.cache_strategy
    assert one.auto_retry is None
    assert not one.http_cache
    assert (one.timeout.connect, one.timeout.read) == (5, 20)


def test_a_proxy_of_the_environment_is_used(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "ghe.example.test")

    def pool(url):
        return type(client.open_transport(url)._pool).__name__

    assert pool("https://api.github.com") == "AsyncHTTPProxy"
    assert pool("https://ghe.example.test/api/v3") == "AsyncConnectionPool"
