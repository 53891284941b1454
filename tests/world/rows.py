"""What a bot's database says is not done, read beside the running bot."""

from __future__ import annotations

import sqlite3
from contextlib import closing

QUESTIONS = {
    "deliveries": "SELECT count(*) FROM inbox WHERE state = 'new'",
    "runs": "SELECT count(*) FROM run WHERE state <> 'ended'",
    "attempts": "SELECT count(*) FROM attempt WHERE state NOT IN ('gone', 'void')",
    "publications": "SELECT count(*) FROM publication WHERE state <> 'dead' AND sent_rev < desired_rev",
}


def undone(database: str) -> dict[str, int]:
    """Rows that wait for something, by kind; empty when all is done."""
    counts = {what: _ask(database, question) for what, question in QUESTIONS.items()}
    return {what: count for what, count in counts.items() if count}


def leased(database: str) -> int:
    """Rows that some process is working on now."""
    tables = ("inbox", "run", "attempt", "publication", "provider_account", "stray")
    return sum(_ask(database, f"SELECT count(*) FROM {table} WHERE lease_token IS NOT NULL") for table in tables)


def _ask(database: str, question: str) -> int:
    if "://" in database:
        import psycopg

        with psycopg.connect(database, connect_timeout=10) as connection:
            row = connection.execute(question).fetchone()  # type: ignore[arg-type]  # a constant of ours
            return int(row[0]) if row else 0
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as lite:
        return int(lite.execute(question).fetchone()[0])
