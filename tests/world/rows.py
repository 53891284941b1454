"""What a bot's database says, read beside the running bot, and the little that a test writes there."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

QUESTIONS = {
    "deliveries": "SELECT count(*) FROM inbox WHERE state = 'new'",
    "runs": "SELECT count(*) FROM run WHERE state <> 'ended'",
    "attempts": "SELECT count(*) FROM attempt WHERE state NOT IN ('gone', 'void')",
    "publications": "SELECT count(*) FROM publication WHERE state <> 'dead' AND sent_rev < desired_rev",
    "gates": "SELECT count(*) FROM gate WHERE state = 'open' AND look IS NULL",
    "strays": "SELECT count(*) FROM stray WHERE state <> 'gone'",
}
WORK = ("inbox", "run", "attempt", "publication", "provider_account", "stray", "gate")
"""Tables whose rows are leased."""

Row = dict[str, Any]


def undone(database: str) -> dict[str, int]:
    """Rows that wait for something, by kind; empty when all is done."""
    counts = {what: _count(database, question) for what, question in QUESTIONS.items()}
    return {what: count for what, count in counts.items() if count}


def leased(database: str) -> int:
    """Rows that some process is working on now."""
    return sum(_count(database, f"SELECT count(*) FROM {table} WHERE lease_token IS NOT NULL") for table in WORK)


def select(database: str, question: str) -> list[Row]:
    """Rows by column name, as they stand: times are microseconds since 1970, structured values are JSON text."""
    if "://" in database:
        import psycopg
        from psycopg.rows import dict_row

        with psycopg.connect(database, connect_timeout=10, row_factory=dict_row) as connection:
            return connection.execute(question).fetchall()  # type: ignore[arg-type]  # a constant of the tests
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as lite:
        lite.row_factory = sqlite3.Row
        return [dict(row) for row in lite.execute(question)]


def let_leases_pass(database: str) -> None:
    """The 75 s are over after which a dead worker's rows are anybody's.

    Only while no worker lives. SQLite needs none of it: there the next process voids them itself.
    """
    if "://" in database:
        for table in WORK:
            write(database, f"UPDATE {table} SET lease_until = 1 WHERE lease_token IS NOT NULL")


def end_idle_transactions(url: str) -> None:
    """What PostgreSQL does after a minute to a process that halted in the middle of a transaction."""
    write(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gpurun'"
        " AND datname = current_database() AND state LIKE 'idle in transaction%'",
    )


def write(database: str, statement: str) -> None:
    """Commits it, whoever else has the database."""
    if "://" in database:
        import psycopg

        with psycopg.connect(database, connect_timeout=10) as connection:
            connection.execute(statement)  # type: ignore[arg-type]  # a constant of the tests
        return
    with closing(sqlite3.connect(database, timeout=10)) as lite, lite:
        lite.execute(statement)


def _count(database: str, question: str) -> int:
    return int(next(iter(select(database, question)[0].values())))
