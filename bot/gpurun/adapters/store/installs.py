"""How fast installations of the App may be spoken to (docs/concepts/engine.md, `publication`)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, case, func, literal, select, update

from gpurun.adapters.store import tables
from gpurun.adapters.store.base import TransactionBase, is_open
from gpurun.adapters.store.codec import Moment
from gpurun.domain.pace import Pace
from gpurun.ports.store import Kind

_PACE = ("hour_until", "minute_until", "reads_until", "yielding_until")


class InstallTable(TransactionBase):
    """`ports.store.InstallRows`."""

    def install_pause(self, installation_id: int) -> datetime | None:
        table = tables.install
        until = select(table.c.paused_until).where(table.c.installation_id == installation_id)
        until = until.where(table.c.paused_until > self.now())
        return self._connection.execute(until).scalar_one_or_none()

    def pause_install(self, installation_id: int, until: datetime) -> None:
        table = tables.install
        pause = self._insert(table).values(installation_id=installation_id, paused_until=until)
        longer = table.c.paused_until < until
        self._change(
            pause.on_conflict_do_update(index_elements=["installation_id"], set_={"paused_until": until}, where=longer)
        )

    def resume_install(self, installation_id: int) -> None:
        now = self.now()
        table = tables.install
        free = update(table).where(table.c.installation_id == installation_id)
        self._change(free.values(paused_until=now, strikes=None))
        for kind in (Kind.PUBLICATION, Kind.INBOX):
            work = tables.publication if kind is Kind.PUBLICATION else tables.inbox
            waiting = (work.c.installation_id == installation_id, work.c.due_at > now, is_open(kind))
            self._change(update(work).where(*waiting).values(due_at=now, woken_at=now))

    def strike(self, installation_id: int) -> int:
        self._be_there(installation_id)
        table = tables.install
        mine = update(table).where(table.c.installation_id == installation_id)
        count = mine.values(strikes=func.coalesce(table.c.strikes, 0) + 1).returning(table.c.strikes)
        return int(self._connection.execute(count).scalar_one())

    def forgive(self, installation_id: int) -> None:
        table = tables.install
        struck = (table.c.installation_id == installation_id, table.c.strikes.is_not(None))
        self._change_quietly(update(table).where(*struck).values(strikes=None))

    def pace(self, installation_id: int) -> Pace:
        return self._pace(_pace_of(installation_id))

    def pace_to_change(self, installation_id: int) -> Pace:
        self._be_there(installation_id)
        return self._pace(_pace_of(installation_id).with_for_update())

    def save_pace(self, installation_id: int, pace: Pace) -> None:
        table = tables.install
        values = {name: getattr(pace, name) for name in _PACE}
        self._change_quietly(update(table).where(table.c.installation_id == installation_id).values(values))

    def count_telling(self, installation_id: int, login: str, *, window: timedelta) -> int:
        table, now = tables.refusal, self.now()
        first = self._insert(table).values(installation_id=installation_id, login=login.lower(), told_at=now, told=1)
        long_ago = table.c.told_at <= now - window
        again = {
            "told_at": case((long_ago, literal(now, Moment())), else_=table.c.told_at),
            "told": case((long_ago, 1), else_=table.c.told + 1),
        }
        counted = first.on_conflict_do_update(index_elements=["installation_id", "login"], set_=again)
        return int(self._connection.execute(counted.returning(table.c.told)).scalar_one())

    def _pace(self, wanted: Select[Any]) -> Pace:
        row = self._one(wanted)
        return Pace() if row is None else Pace(**{name: row[name] for name in _PACE})

    def _be_there(self, installation_id: int) -> None:
        """The row that everybody locks exists."""
        fresh = self._insert(tables.install).values(installation_id=installation_id, paused_until=self.now())
        self._change_quietly(fresh.on_conflict_do_nothing())


def _pace_of(installation_id: int) -> Select[Any]:
    table = tables.install
    return select(*(table.c[name] for name in _PACE)).where(table.c.installation_id == installation_id)
