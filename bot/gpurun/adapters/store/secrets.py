"""Sealed secrets. Every writer of a version takes the row of the version in force first, so that there is one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, exists, func, or_, select, update

from gpurun.adapters.store import tables
from gpurun.adapters.store.base import Row, TransactionBase
from gpurun.domain.run import AttemptState
from gpurun.domain.secret import KeptSecret, Sealed

_PLAIN = ("id", "repo", "name", "set_at", "set_by", "replaced_at", "repo_id")
_SECRET, _USE = tables.secret, tables.secret_use
_GIVEN = select(_SECRET).join(_USE, _USE.c.secret_id == _SECRET.c.id).order_by(_SECRET.c.name, _SECRET.c.id)


class SecretTable(TransactionBase):
    """`ports.vault.SecretRows`. None of it is news: no row of work waits for a secret."""

    def set_secret(self, secret: KeptSecret) -> None:
        self.remove_secret(secret.repo, secret.name)
        values = {name: getattr(secret, name) for name in _PLAIN}
        self._change_quietly(self._insert(_SECRET).values(values | _columns(secret.sealed)))

    def remove_secret(self, repo: str, name: str) -> bool:
        replaced = update(_SECRET).where(_in_force(repo), _SECRET.c.name == name)
        return self._change_quietly(replaced.values(replaced_at=self.now())) > 0

    def secrets(self, repo: str) -> tuple[KeptSecret, ...]:
        return tuple(map(_kept, self._all(select(_SECRET).where(_in_force(repo)).order_by(_SECRET.c.name))))

    def given(self, attempt_id: str) -> tuple[KeptSecret, ...]:
        return tuple(map(_kept, self._all(_GIVEN.where(_USE.c.attempt_id == attempt_id))))

    def hand_out(self, attempt_id: str, versions: Sequence[str], *, repo_id: int) -> bool:
        wanted = (_SECRET.c.id.in_(versions), or_(_SECRET.c.repo_id.is_(None), _SECRET.c.repo_id == repo_id))
        # keeps `forget_replaced` away until the uses below are there; not shared, as two claims that both go on to bind
        # a row would wait for each other, and everywhere in the order of ids for the same reason
        held = select(_SECRET.c.id).where(*wanted).order_by(_SECRET.c.id).with_for_update()
        if len(self._connection.execute(held).scalars().all()) < len(set(versions)):
            return False
        self._change_quietly(update(_SECRET).where(*wanted, _SECRET.c.repo_id.is_(None)).values(repo_id=repo_id))
        for version in versions:
            use = self._insert(_USE).values(attempt_id=attempt_id, secret_id=version)
            self._change_quietly(use.on_conflict_do_nothing())
        return True

    def claim_secret(self, version: str, *, repo_id: int) -> bool:
        free = or_(_SECRET.c.repo_id.is_(None), _SECRET.c.repo_id == repo_id)
        mine = update(_SECRET).where(_SECRET.c.id == version, free).values(repo_id=repo_id)
        return self._change_quietly(mine) > 0

    def sealed_otherwise(self, key_id: str, *, after: str, limit: int) -> tuple[KeptSecret, ...]:
        others = select(_SECRET).where(_SECRET.c.key_id != key_id, _SECRET.c.id > after)
        return tuple(map(_kept, self._all(others.order_by(_SECRET.c.id).limit(limit).with_for_update())))

    def reseal(self, secret: KeptSecret, sealed: Sealed) -> bool:
        same = (_SECRET.c.id == secret.id, _SECRET.c.data == secret.sealed.data)
        return self._change_quietly(update(_SECRET).where(*same).values(_columns(sealed))) > 0

    def secret_keys(self) -> frozenset[str]:
        return frozenset(self._connection.execute(select(_SECRET.c.key_id).distinct()).scalars())

    def forget_replaced(self, *, unused_since: datetime) -> int:
        attempt = tables.attempt
        over = and_(
            attempt.c.state.in_((AttemptState.GONE, AttemptState.VOID)),
            func.coalesce(attempt.c.gone_at, attempt.c.state_since) <= unused_since,
        )
        held = exists().where(_USE.c.secret_id == _SECRET.c.id, attempt.c.id == _USE.c.attempt_id, ~over)
        replaced = select(_SECRET.c.id).where(_SECRET.c.replaced_at.is_not(None)).order_by(_SECRET.c.id)
        found = list(self._connection.execute(replaced.with_for_update()).scalars())
        if not found:
            return 0
        # only now: a claim that is under way has written its use before the rows above could be locked, or finds none
        unused = list(self._connection.execute(select(_SECRET.c.id).where(_SECRET.c.id.in_(found), ~held)).scalars())
        self._change_quietly(delete(_USE).where(_USE.c.secret_id.in_(unused)))
        return self._change_quietly(delete(_SECRET).where(_SECRET.c.id.in_(unused)))


def _in_force(repo: str) -> ColumnElement[bool]:
    return and_(_SECRET.c.repo == repo, _SECRET.c.replaced_at.is_(None))


def _columns(sealed: Sealed) -> dict[str, Any]:
    return {"key_id": sealed.key_id, "data": sealed.data}


def _kept(row: Row) -> KeptSecret:
    sealed = Sealed(key_id=row["key_id"], data=bytes(row["data"]))
    return KeptSecret(sealed=sealed, **{name: row[name] for name in _PLAIN})
