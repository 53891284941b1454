"""Where a run's file lies, what policy applies to it, all its faults, and how often it may be tried."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("run", sa.Column("folder", sa.Text(), nullable=False, server_default=""))
    op.add_column("run", sa.Column("policy_text", sa.LargeBinary(), nullable=True))
    op.add_column("run", sa.Column("faults", sa.Text(), nullable=False, server_default="[]"))
    op.add_column("run", sa.Column("notes", sa.Text(), nullable=False, server_default="[]"))
    op.add_column("run", sa.Column("max_attempts", sa.Integer(), nullable=False, server_default="2"))
