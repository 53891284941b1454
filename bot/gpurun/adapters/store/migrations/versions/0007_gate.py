"""The gate, overrides, pauses, presses of buttons, and what was asked of a run beyond its file."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def _repo() -> tuple[sa.Column[int], sa.Column[str], sa.Column[int]]:
    return (
        sa.Column("installation_id", sa.BigInteger(), nullable=False),
        sa.Column("repo_name", sa.Text(), nullable=False),
        sa.Column("repo_id", sa.BigInteger(), nullable=False),
    )


def upgrade() -> None:
    op.add_column("run", sa.Column("narrow", sa.Text(), nullable=False, server_default="{}"))
    op.add_column("publication", sa.Column("gate_id", sa.Text(), nullable=False, server_default=""))
    op.create_index("ix_publication_gate_id", "publication", ["gate_id"])
    op.add_column("refusal", sa.Column("told", sa.Integer(), nullable=False, server_default="1"))
    op.create_table(
        "press",
        sa.Column("check_id", sa.BigInteger(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("second", sa.BigInteger(), nullable=False),
        sa.Column("inbox_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("check_id", "action", "sender", "second", name="pk_press"),
    )
    _gate()
    _override()
    _pause()


def _gate() -> None:
    op.create_table(
        "gate",
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("woken_at", sa.BigInteger(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        *_repo(),
        sa.Column("pr", sa.BigInteger(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("base_ref", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("look", sa.Text(), nullable=True),
        sa.Column("looked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_gate"),
        sa.UniqueConstraint("repo_id", "pr", "sha", name="uq_gate_repo_id_pr_sha"),
        postgresql_with={"fillfactor": "70"},
    )
    due = sa.text("due_at IS NOT NULL")
    op.create_index("ix_gate_due_at", "gate", ["due_at"], sqlite_where=due, postgresql_where=due)


def _override() -> None:
    op.create_table(
        "override",
        sa.Column("id", sa.Text(), nullable=False),
        *_repo(),
        sa.Column("pr", sa.BigInteger(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_override"),
    )
    op.create_index("ix_override_repo_id_pr_sha", "override", ["repo_id", "pr", "sha"])


def _pause() -> None:
    op.create_table(
        "pause",
        sa.Column("id", sa.Text(), nullable=False),
        *_repo(),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_pause"),
    )
    in_force = sa.text("ended_at IS NULL")
    op.create_index(
        "uq_pause_in_force", "pause", ["repo_id"], unique=True, sqlite_where=in_force, postgresql_where=in_force
    )
