"""A database of every revision, with rows in it, becomes one of the newest revision and is read."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, insert, text

from gpurun.adapters.store import adopt, check, schema, tables, upgrade
from gpurun.adapters.store.database import open_postgres, open_sqlite
from gpurun.domain.approval import ApprovalEnd
from gpurun.domain.delivery import InboxState
from gpurun.domain.errors import StoreBusy
from gpurun.domain.narrow import Narrow
from gpurun.domain.publication import PublicationState
from gpurun.domain.run import AttemptState, Fault, RunState, StrayState, Untrusted
from gpurun.domain.stream import StreamName
from tests.services.postgres import make_store
from tests.unit.adapters.store.samples import a_run, an_attempt
from tests.unit.adapters.store.test_attempts import FULL
from tests.unit.adapters.store.test_runs import ENDED

DATA = Path(__file__).parents[3] / "data" / "migrations"
REVISIONS = [script.revision for script in ScriptDirectory(str(schema.MIGRATIONS)).walk_revisions()][::-1]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_url(request, tmp_path):
    """A database without tables."""
    if request.param == "sqlite":
        yield str(tmp_path / "empty.sqlite")
        return
    cluster = request.getfixturevalue("postgres_cluster")
    cluster.sql("CREATE DATABASE gpurun_empty")
    yield cluster.url("gpurun_empty")
    cluster.sql("DROP DATABASE gpurun_empty WITH (FORCE)")


def database(url):
    return open_postgres(url, None) if "://" in url else open_sqlite(Path(url), None)


def migrate(url, revision):
    opened = database(url)
    with opened.connection() as connection:
        command.upgrade(schema.alembic_config(connection), revision)
    opened.close()


def load(url, rows):
    """As the revision has the tables: nothing of today's code is asked."""
    opened = database(url)
    with opened.connection() as connection:
        found = MetaData()
        found.reflect(connection)
        for table, values in rows.items():
            connection.execute(insert(found.tables[table]), [dict(map(_plain, row.items())) for row in values])
        if connection.dialect.name == "postgresql":
            for table in ("inbox", "audit"):
                connection.execute(text(f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))"))
    opened.close()


def _plain(item):
    name, value = item
    return name, bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


def test_the_newest_revision_is_the_one_that_new_databases_get():
    assert REVISIONS[-1] == schema.HEAD


def test_every_revision_has_rows_to_start_from():
    assert sorted(path.stem for path in DATA.glob("*.json")) == REVISIONS


@pytest.mark.parametrize("revision", REVISIONS)
async def test_rows_of_every_revision_are_read_after_the_upgrade(empty_url, clock, chance, revision):
    rows = json.loads((DATA / f"{revision}.json").read_text())
    migrate(empty_url, revision)
    load(empty_url, rows)
    upgrade(empty_url)
    assert check(empty_url) == ()
    adopt(empty_url)
    async with make_store(empty_url, clock, chance) as store:
        assert store.install_id == rows["meta"][0]["install_id"]
        await store.read(lambda tx: _read_everything(tx, revision))
        # numbering goes on behind the rows that were there
        await store.write(lambda tx: tx.audit(tx.audit_of("run:run-1")[0]))
        assert (await store.verify_audit()).first_bad is None


SINCE_0007 = {"narrow": Narrow()}
SINCE_0006 = {"base_ref": "", "untrusted": None, "quote": None}
SINCE_0004 = {"faults": (), "notes": (), "max_attempts": 2, "folder": "", "policy_text": None}
SINCE_0002 = {"exit_code": None, "disk": None}
WITH_0004 = {
    "folder": "sub",
    "policy_text": "version: 1\n",
    "faults": (Fault(file=".gpurun.yml", line=3, text="unknown key"),),
    "notes": ("a note",),
    "max_attempts": 3,
}


def _read_everything(tx, revision):
    ended = ENDED if revision >= "0007" else replace(ENDED, **SINCE_0007)
    ended = ended if revision >= "0006" else replace(ended, **SINCE_0006)
    assert tx.run("run-1") == (ended if revision >= "0004" else replace(ended, **SINCE_0004))
    assert tx.run("run-2") == a_run("run-2")
    assert tx.attempt("attempt-1") == (FULL if revision >= "0002" else replace(FULL, **SINCE_0002))
    assert tx.attempt("attempt-2") == an_attempt("attempt-2", number=2)
    assert tx.inbox("1").delivery.body == b"{}"
    assert not tx.audit_of("run:none")
    assert len(tx.audit_of("run:run-1")) == 3
    assert tx.account("docker") is not None
    assert len(tx.strays("docker")) == 1
    assert len(tx.publications("run-1")) == 1
    assert tx.install_pause(7) is not None
    assert tx.read_stream("attempt-1", StreamName.LOG, offset=0, max_bytes=99) == b"hello\n"
    assert len(tx.artifacts("attempt-1")) == 1
    if revision >= "0005":
        assert [secret.id for secret in tx.given("attempt-1")] == ["version-1"]
        assert [secret.id for secret in tx.secrets("octo/models")] == ["version-2"]
    ids = [one.id for one in tx.approvals(ENDED.repo, 1)]
    assert ids == (["approval-1", "approval-2"] if revision >= "0006" else [])
    assert (tx.approval(ENDED.repo, 1) is not None) is (revision >= "0006")
    overrides, gates = tx.overrides(ENDED.repo, 1, ENDED.sha), tx.gates(ENDED.repo, 1)
    assert [one.reason for one in overrides] == (["flaky host"] if revision >= "0007" else [])
    assert [one.look is not None for one in gates] == ([True] if revision >= "0007" else [])
    assert (tx.pause_of(ENDED.repo) is not None) is (revision >= "0007")


def test_a_migrated_database_is_the_same_as_a_new_one(empty_url, tmp_path, request):
    migrate(empty_url, "head")
    new_url = request.getfixturevalue("postgres_url") if "://" in empty_url else str(tmp_path / "new.sqlite")
    upgrade(new_url)
    assert check(empty_url) == check(new_url) == ()
    assert _described(empty_url) == _described(new_url)


def _described(url):
    """Tables with columns, constraints, indexes and options, in words of the database."""
    opened = database(url)
    with opened.connection() as connection:
        if connection.dialect.name == "postgresql":
            described = _describe_postgres(connection)
        else:
            made = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
            # a column that was added stands in the line of the last one that was there
            described = {name: sorted(filter(None, re.split(r"\s*[,\n]\s*", sql.strip()))) for name, sql in made}
    opened.close()
    return described


def _describe_postgres(connection):
    tables_and_indexes = connection.execute(
        text(
            "SELECT c.relname, c.reloptions::text, pg_get_indexdef(i.indexrelid) FROM pg_class c"
            " LEFT JOIN pg_index i ON i.indexrelid = c.oid WHERE c.relnamespace = 'public'::regnamespace"
        )
    )
    columns = connection.execute(
        text(
            "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns"
            " WHERE table_schema = 'public'"
        )
    )
    return sorted(map(str, tables_and_indexes)), sorted(map(str, columns))


def test_an_empty_database_and_an_old_one_need_an_upgrade(empty_url):
    (problem,) = check(empty_url)
    assert "gpurun db upgrade" in problem


def test_a_column_that_no_revision_made_is_a_difference(empty_url):
    upgrade(empty_url)
    opened = database(empty_url)
    with opened.connection() as connection:
        connection.execute(text("ALTER TABLE run ADD COLUMN colour TEXT"))
    opened.close()
    (problem,) = check(empty_url)
    assert "colour" in problem


async def test_a_database_of_a_newer_version_is_left_alone(empty_url, clock, chance):
    upgrade(empty_url)
    opened = database(empty_url)
    with opened.connection() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    opened.close()
    with pytest.raises(StoreBusy, match="newer"):
        await make_store(empty_url, clock, chance).__aenter__()


@pytest.mark.postgres
def test_hot_tables_leave_room_for_the_next_version_of_a_row(postgres_url):
    opened = database(postgres_url)
    with opened.connection() as connection:
        hot = connection.execute(text("SELECT relname FROM pg_class WHERE reloptions @> '{fillfactor=70}'")).scalars()
        assert set(hot) == {"inbox", "run", "attempt", "provider_account", "stray", "publication", "stream", "gate"}
    opened.close()


def test_no_state_that_rows_may_hold_is_renamed_or_removed():
    """Add to these sets when a state is new; take nothing out."""
    assert {"new", "done", "ignored", "poison"} <= set(InboxState)
    assert {"planning", "waiting_approval", "queued", "active", "ended"} <= set(RunState)
    assert {
        "chosen", "creating", "looking", "unsure", "booting", "live", "destroying", "gone", "void",
    } <= set(AttemptState)  # fmt: skip
    assert {"seen", "destroying", "gone"} <= set(StrayState)
    assert {"pushed", "closed", "drafted", "rebased", "revoked", "replaced"} <= set(ApprovalEnd)
    assert {"fork", "author"} <= set(Untrusted)
    assert {"idle", "due", "sending", "reconciling", "dead"} <= set(PublicationState)


def test_work_tables_carry_the_columns_of_a_claim():
    for table in ("inbox", "run", "attempt", "provider_account", "stray", "publication"):
        assert {"due_at", "lease_until", "lease_token", "tries", "last_error"} <= set(
            tables.metadata.tables[table].c.keys()
        )
