"""Secrets of repositories, and which attempt was given which."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "secret",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("set_at", sa.BigInteger(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("replaced_at", sa.BigInteger(), nullable=True),
        sa.Column("repo_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_secret"),
    )
    in_force = sa.text("replaced_at IS NULL")
    op.create_index(
        "uq_secret_in_force",
        "secret",
        ["repo", "name"],
        unique=True,
        sqlite_where=in_force,
        postgresql_where=in_force,
    )
    op.create_index("ix_secret_key_id", "secret", ["key_id"])
    op.create_table(
        "secret_use",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("secret_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "secret_id", name="pk_secret_use"),
    )
    op.create_index("ix_secret_use_secret_id", "secret_use", ["secret_id"])
