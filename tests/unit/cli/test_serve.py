"""A server that cannot start says why in a sentence, and exits with 2."""

from __future__ import annotations

import socket

import pytest
from fastapi import FastAPI

from gpurun.cli.serve import _Web, serve
from gpurun.domain.errors import UserError
from gpurun.settings import Settings
from tests.fakes.github.keys import app_key, pem

CANARY = "canary-2c81"


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """Everything that a server needs; `settings(port="x")` changes one."""

    def change(**changes: str) -> None:
        for name, value in changes.items():
            monkeypatch.setenv(f"GPURUN_{name.upper()}", value)

    change(github_app_id="1", github_private_key=pem(app_key()), webhook_secret=CANARY, port="0")
    return change


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"port": "abc"}, "GPURUN_PORT is 'abc'"),
        ({"public_url": "your.host"}, "GPURUN_PUBLIC_URL is 'your.host'"),
        ({"github_api_url": "not a url"}, "GPURUN_GITHUB_API_URL is 'not a url'"),
        ({"github_app_id": "0"}, "The GitHub App's id is not set.\nSet GPURUN_GITHUB_APP_ID"),
        ({"webhook_secret": ""}, "The webhook secret is not set"),
        ({"github_private_key": ""}, "private key is not set.\nSet GPURUN_GITHUB_PRIVATE_KEY_FILE"),
        ({"github_private_key": CANARY}, "private key cannot be read; it must be RSA in PEM"),
        ({"github_private_key_file": "/nonexistent.pem"}, "/nonexistent.pem cannot be read: No such file"),
        ({"state_dir": "/dev/null/state"}, "The state folder /dev/null/state cannot be made"),
        ({"database_url": f"mysql://u:{CANARY}@host/name"}, "GPURUN_DATABASE_URL is no address"),
        ({"database_url": CANARY}, "GPURUN_DATABASE_URL is no address"),
        ({"database_url": f"postgresql:{CANARY}"}, "GPURUN_DATABASE_URL is no address"),
        ({"database_url": f"postgresql://u:{CANARY}@127.0.0.1:1/name"}, 'server at "127.0.0.1", port 1 failed'),
    ],
)
def test_what_is_missing_is_named(settings, capsys, changes, told):
    settings(**changes)
    assert serve() == 2
    out, err = capsys.readouterr()
    assert told in err
    assert err.startswith("gpurun serve: ")
    assert CANARY not in out + err


async def test_an_address_that_is_taken(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        web = _Web(FastAPI(), Settings(port=taken.getsockname()[1]), install="abcd1234")
        with pytest.raises(UserError, match="cannot be listened on"):
            await web.serve()
    assert web.stopped.is_set()
    assert '"serving"' not in capsys.readouterr().err
