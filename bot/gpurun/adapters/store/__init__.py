"""The store on SQLite and PostgreSQL: `async with SqliteStore(path, …) as store`."""

from gpurun.adapters.store.admin import adopt, change, check, open_store, upgrade, verify_audit
from gpurun.adapters.store.engine import DATABASE_CLOCK, PostgresStore, SqliteStore

__all__ = [
    "DATABASE_CLOCK",
    "PostgresStore",
    "SqliteStore",
    "adopt",
    "change",
    "check",
    "open_store",
    "upgrade",
    "verify_audit",
]
