from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from gpurun.adapters.clock import SystemChance, SystemClock
from gpurun.adapters.store import SqliteStore
from gpurun.cli import database
from gpurun.domain.run import AuditEntry


@pytest.fixture
def file(tmp_path):
    return tmp_path / "state" / "gpurun.db"


async def filled(file) -> None:
    """Three sealed entries."""
    file.parent.mkdir()
    async with SqliteStore(file, clock=SystemClock(), chance=SystemChance()) as store:
        for number in range(3):
            await store.write(
                lambda tx, n=number: tx.audit(AuditEntry(at=tx.now(), actor="cli", kind="done", subject=f"run:{n}"))
            )
        await store.write(lambda tx: tx.seal_audit(limit=10))


@pytest.mark.parametrize("command", [database.check, database.adopt, database.verify_audit])
def test_a_database_that_is_not_there_is_not_made(command, file, capsys):
    assert command() == 2
    assert f"There is no database {file}." in capsys.readouterr().err
    assert not file.parent.exists()


def test_upgrade_makes_one_and_all_else_is_content_with_it(file, capsys):
    assert database.upgrade() == 0
    assert database.check() == 0
    assert database.verify_audit() == 0
    assert "The chain holds: 0 sealed entries" in capsys.readouterr().out
    assert database.adopt() == 0
    assert file.parent.stat().st_mode & 0o077 == 0


async def test_an_untouched_chain_holds(file, capsys):
    await filled(file)
    assert database.verify_audit() == 0
    assert "The chain holds: 3 sealed entries, 0 waiting" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        ("UPDATE audit SET actor = 'mallory' WHERE id = 2", "position 2: The row was changed."),
        ("DELETE FROM audit WHERE id = 3", "position 3: The row is missing."),
        ("DELETE FROM audit_seal WHERE position = 3", "position 3: The chain ends before its newest seal."),
    ],
)
async def test_an_edited_chain_breaks_at_its_first_bad_position(file, capsys, edit, told):
    await filled(file)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(edit)
        connection.commit()
    assert database.verify_audit() == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("command", [database.upgrade, database.check, database.adopt, database.verify_audit])
def test_a_file_that_is_none_is_a_sentence(command, file, capsys):
    file.parent.mkdir()
    file.write_text("garbage " * 1000)
    assert command() == 2
    assert "The file is no SQLite database." in capsys.readouterr().err


@pytest.mark.parametrize("url", ["mysql://u:canary-9@host/name", "postgresql://u:canary-9@host:port/name"])
def test_an_odd_address_is_refused_without_its_password(monkeypatch, capsys, url):
    monkeypatch.setenv("GPURUN_DATABASE_URL", url)
    assert database.check() == 2
    told = capsys.readouterr().err
    assert "GPURUN_DATABASE_URL is no address" in told
    assert "canary" not in told


def test_a_server_that_does_not_answer_is_named_without_the_password(monkeypatch, capsys):
    monkeypatch.setenv("GPURUN_DATABASE_URL", "postgresql://u:canary-9@127.0.0.1:1/name")
    assert database.check() == 2
    told = capsys.readouterr().err
    assert 'server at "127.0.0.1", port 1 failed' in told
    assert "canary" not in told


async def test_a_locked_database_is_not_adopted(file, capsys):
    await filled(file)
    async with SqliteStore(file, clock=SystemClock(), chance=SystemChance()):
        assert database.adopt() == 2
    assert "Another gpurun process uses" in capsys.readouterr().err
