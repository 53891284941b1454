"""Approvals, whether the code of a run is trusted, and what it would cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("run", sa.Column("base_ref", sa.Text(), nullable=False, server_default=""))
    op.add_column("run", sa.Column("untrusted", sa.Text(), nullable=True))
    op.add_column("run", sa.Column("quote", sa.Text(), nullable=True))
    op.create_table(
        "approval",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("installation_id", sa.BigInteger(), nullable=False),
        sa.Column("repo_name", sa.Text(), nullable=False),
        sa.Column("repo_id", sa.BigInteger(), nullable=False),
        sa.Column("pr", sa.BigInteger(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("max_usd_micro", sa.BigInteger(), nullable=True),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("end", sa.Text(), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_approval"),
    )
    in_force = sa.text("ended_at IS NULL")
    op.create_index(
        "uq_approval_in_force",
        "approval",
        ["repo_id", "pr"],
        unique=True,
        sqlite_where=in_force,
        postgresql_where=in_force,
    )
    op.create_index("ix_approval_repo_id_pr_at", "approval", ["repo_id", "pr", "at"])
