"""Alembic's entry: one connection, handed over by `schema`."""

from __future__ import annotations

from alembic import context

from gpurun.adapters.store import tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.metadata,
    compare_type=True,
    render_as_batch=context.config.attributes["connection"].dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
