"""How fast an installation may be written to, and who was told no."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("install", sa.Column("strikes", sa.Integer(), nullable=True))
    for name in ("hour_until", "minute_until", "reads_until", "yielding_until"):
        op.add_column("install", sa.Column(name, sa.BigInteger(), nullable=True))
    op.add_column("publication", sa.Column("slot_at", sa.BigInteger(), nullable=True))
    op.add_column("inbox", sa.Column("slot_at", sa.BigInteger(), nullable=True))
    op.create_table(
        "refusal",
        sa.Column("installation_id", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("login", sa.Text(), nullable=False),
        sa.Column("told_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("installation_id", "login", name="pk_refusal"),
    )
