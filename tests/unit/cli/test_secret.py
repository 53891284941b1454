"""`gpurun secret`: values never on the command line, sentences instead of tracebacks, also while a server runs."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading

import pytest
from click.testing import CliRunner

from gpurun.adapters.clock import SystemChance, SystemClock
from gpurun.adapters.secrets import MemorySecrets
from gpurun.adapters.store import PostgresStore, SqliteStore, upgrade
from gpurun.adapters.vault import KeyFile, StoredVault
from gpurun.cli.main import cli
from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import RepoName

VALUE = "canary-value-91"
REPO = RepoRef(installation_id=1, name=RepoName("acme/train"), id=3)


@pytest.fixture
def state(tmp_path):
    """A state folder with an empty database, no server."""
    folder = tmp_path / "state"
    folder.mkdir()
    upgrade(folder / "gpurun.db")
    return folder


def secret(*words, value=None):
    """Exit code, stdout and stderr."""
    done = CliRunner().invoke(cli, ["secret", *words], input=value, catch_exceptions=False)
    assert VALUE not in done.output
    return done.exit_code, done.stdout, done.stderr


def set_it(name="HF_TOKEN", value=VALUE):
    return secret("set", name, "--repo", "acme/train", value=value)


async def value_of(store, state, name="HF_TOKEN"):
    vault = StoredVault(store, KeyFile(state / "secrets.key"), MemorySecrets())
    (given,) = await vault.values(REPO, [name], "a")
    return given.value.get_secret_value()


async def test_from_set_to_rm(state):
    code, out, err = set_it(value=f"{VALUE}\n")
    assert (code, err) == (0, "")
    assert out == (
        "HF_TOKEN is set for acme/train. Jobs that say `secrets: [HF_TOKEN]` get it from their next run on.\n"
    )
    assert (state / "secrets.key").stat().st_mode & 0o777 == 0o600
    assert "has a new value" in set_it()[1]
    code, out, _ = secret("list", "--repo", "Acme/Train")
    assert code == 0
    assert re.fullmatch(r"HF_TOKEN  \d{4}-\d\d-\d\d \d\d:\d\d UTC  \S+\n", out)
    async with SqliteStore(state / "gpurun.db", clock=SystemClock(), chance=SystemChance()) as store:
        assert await value_of(store, state) == VALUE
    assert secret("rm", "HF_TOKEN", "--repo", "acme/train")[0] == 0
    told = "gpurun secret rm: No secret HF_TOKEN is set for acme/train.\n"
    hint = "`gpurun secret list --repo acme/train` shows what is.\n"
    assert secret("rm", "HF_TOKEN", "--repo", "acme/train") == (2, "", told + hint)
    assert "No secret is set for acme/train." in secret("list", "--repo", "acme/train")[1]


async def test_while_a_server_has_the_database(state):
    async with SqliteStore(state / "gpurun.db", clock=SystemClock(), chance=SystemChance()) as server:
        # a process of its own, as it is: a lock that one process holds twice would say nothing
        done = subprocess.run(
            [sys.executable, "-m", "gpurun", "secret", "set", "HF_TOKEN", "--repo", "acme/train"],
            env={"GPURUN_STATE_DIR": str(state), "PATH": os.getenv("PATH", "")},
            input=VALUE.encode(),
            capture_output=True,
            timeout=50,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert await value_of(server, state) == VALUE
        await server.write(lambda tx: tx.remove_secret("acme/train", "HF_TOKEN"))


@pytest.mark.postgres
async def test_on_postgresql(postgres_url, state, monkeypatch):
    monkeypatch.setenv("GPURUN_DATABASE_URL", postgres_url)
    async with PostgresStore(postgres_url, chance=SystemChance()) as server:
        assert set_it()[0] == 0
        assert secret("rotate")[0] == 0
        assert await value_of(server, state) == VALUE


@pytest.mark.parametrize(
    ("words", "value", "told"),
    [
        (("set", "hf_token", "--repo", "acme/train"), VALUE, "'hf_token' cannot be the name of a secret"),
        (("set", "PATH", "--repo", "acme/train"), VALUE, "PATH is reserved"),
        (("set", "HF_TOKEN", "--repo", "acme"), VALUE, "'acme' is no repository.\nWrite --repo owner/name."),
        (("set", "HF_TOKEN", "--repo", "acme/train"), "", "`gpurun secret set HF_TOKEN --repo acme/train < file`."),
        (("set", "HF_TOKEN", "--repo", "acme/train"), "abcde\n", "fewer than 6 characters"),
        (("set", "HF_TOKEN", "--repo", "acme/train"), "x" * 50_000, "more than 48 KiB"),
        (("set", "HF_TOKEN", "--repo", "acme/train"), "abc\0defg", "NUL byte"),
        (("set", "HF_TOKEN", "--repo", "acme/train"), b"canary-\xff\xfe", "text in UTF-8, and this value is not."),
    ],
)
def test_what_is_refused(state, words, value, told):
    code, out, err = secret(*words, value=value)
    assert (code, out) == (2, "")
    assert told in err
    assert err.startswith("gpurun secret set: ")
    assert not (state / "secrets.key").exists()


def test_a_value_is_no_argument(state):
    done = CliRunner().invoke(cli, ["secret", "set", "HF_TOKEN", VALUE, "--repo", "acme/train"])
    assert done.exit_code == 2
    assert KeyFile(state / "secrets.key").keys() == ()


def test_a_person_is_asked_without_echo(state):
    """On a terminal of its own."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpurun", "secret", "set", "HF_TOKEN", "--repo", "acme/train"],
        env={"GPURUN_STATE_DIR": str(state), "PATH": os.getenv("PATH", "")},
        stdin=side, stdout=side, stderr=side, start_new_session=True,
    )  # fmt: skip
    os.close(side)
    shown = b""
    ends = threading.Timer(50, process.kill)
    ends.start()
    try:
        while b"is not shown" not in shown:
            shown += os.read(main, 1000)
        os.write(main, VALUE.encode() + b"\n")
        while b"next run on" not in shown:
            shown += os.read(main, 1000)
    finally:
        ends.cancel()
        process.wait(timeout=50)
        os.close(main)
    assert process.returncode == 0
    assert VALUE.encode() not in shown


def test_without_a_database_nothing_is_made(tmp_path):
    code, _, err = set_it()
    assert code == 2
    assert "There is no database" in err
    assert "gpurun db upgrade" in err
    assert err.endswith("\nFor `gpurun run` on this machine, write NAME=value into .env instead.\n")
    assert not (tmp_path / "state").exists()


def test_an_old_database_says_what_to_type(state):
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(state / "gpurun.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0003'")
    code, _, err = set_it()
    assert code == 2
    assert "gpurun db upgrade" in err
    assert not (state / "secrets.key").exists()


def test_a_lost_key_marks_the_list_and_a_rotation_goes_on(state):
    set_it()
    set_it("OTHER", "another-value-7")
    (state / "secrets.key").unlink()
    set_it("OTHER", "another-value-8")
    code, out, err = secret("list", "--repo", "acme/train")
    assert code == 1
    lost, kept = out.splitlines()
    assert "HF_TOKEN" in lost
    assert "CANNOT BE READ: its key" in lost
    assert "CANNOT" not in kept
    assert err == "Set again what cannot be read: gpurun secret set HF_TOKEN --repo acme/train\n"
    code, out, err = secret("rotate")
    assert code == 1
    assert "1 older key is gone from it. Sealed with it: 1." in out
    assert "HF_TOKEN of acme/train cannot be read. Set it again: gpurun secret set HF_TOKEN --repo acme/train" in err


def test_another_key_file(state, tmp_path, monkeypatch):
    monkeypatch.setenv("GPURUN_SECRETS_KEY_FILE", str(tmp_path / "elsewhere.key"))
    assert set_it()[0] == 0
    assert (tmp_path / "elsewhere.key").is_file()
    monkeypatch.setenv("GPURUN_SECRETS_KEY_FILE", str(tmp_path / "none" / "elsewhere.key"))
    code, _, err = set_it()
    assert code == 2
    assert "There is no folder" in err
