"""What a provider says of an instance's disk and of its end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("attempt", sa.Column("exit_code", sa.Integer(), nullable=True))
    op.add_column("attempt", sa.Column("disk", sa.Text(), nullable=True))
