"""The observer's memory, and instances that nobody owns."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from gpurun.adapters.store import tables
from gpurun.adapters.store.base import Row, TransactionBase, Whole
from gpurun.domain.run import ProviderAccount, Stray, StrayState
from gpurun.ports.store import Lease

_ACCOUNT = ("provider", "due_at", "tries", "last_error", "list_ok_at", "broken_since")
_STRAY = ("id", "provider", "ref", "name", "first_seen", "state", "due_at", "tries", "last_error")

_BY_NAME = select(tables.provider_account).where(tables.provider_account.c.provider == bindparam("provider_"))


class ProviderTable(TransactionBase):
    """`ports.store.ProviderRows`."""

    def ensure_account(self, provider: str) -> None:
        fresh = self._insert(tables.provider_account).values(provider=provider, due_at=self.now())
        self._change(fresh.on_conflict_do_nothing())

    def account(self, provider: str) -> ProviderAccount | None:
        return next(iter(self._wholes(_ACCOUNTS, _BY_NAME, {"provider_": provider})), None)

    def save_account(self, account: ProviderAccount, lease: Lease) -> bool:
        values = {name: getattr(account, name) for name in ("tries", "last_error", "list_ok_at", "broken_since")}
        return self._give_back(lease, values, due_at=account.due_at)

    def add_stray(self, stray: Stray) -> None:
        """Silent when (provider, ref) is known; one that was thought gone is a stray again."""
        table = tables.stray
        values = {name: getattr(stray, name) for name in _STRAY}
        if self._change(self._insert(table).values(values).on_conflict_do_nothing()):
            return
        again = {"state": StrayState.SEEN, "first_seen": stray.first_seen, "due_at": stray.due_at, "tries": 0}
        same = (table.c.provider == stray.provider, table.c.ref == stray.ref)
        self._change(update(table).where(*same, table.c.state == StrayState.GONE).values(again))

    def stray(self, id: str) -> Stray | None:
        row = self._one(select(tables.stray).where(tables.stray.c.id == id))
        return None if row is None else _stray(row)

    def strays(self, provider: str) -> tuple[Stray, ...]:
        table = tables.stray
        known = select(table).where(table.c.provider == provider).order_by(table.c.first_seen, table.c.id)
        return tuple(map(_stray, self._all(known)))

    def save_stray(self, stray: Stray, lease: Lease) -> bool:
        values = {name: getattr(stray, name) for name in ("state", "tries", "last_error")}
        return self._give_back(lease, values, due_at=stray.due_at)


def _stray(row: Row) -> Stray:
    return Stray(**{name: row[name] for name in _STRAY})


def _account(row: Row) -> ProviderAccount:
    return ProviderAccount(**{name: row[name] for name in _ACCOUNT})


_ACCOUNTS = Whole(tables.provider_account, _account)
