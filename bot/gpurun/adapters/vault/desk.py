"""What an operator does to secrets: set, list, remove, rotate. All of it blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from pydantic import SecretStr

from gpurun.adapters.vault.cipher import seal
from gpurun.adapters.vault.keyfile import Key, KeyFile
from gpurun.adapters.vault.opening import fault, opened
from gpurun.domain.environment import name_fault
from gpurun.domain.errors import SecretRefused, SecretUnavailable
from gpurun.domain.run import AuditEntry
from gpurun.domain.secret import LINGER, KeptSecret, require_settable, secret_scope
from gpurun.ports.clock import Chance
from gpurun.ports.store import Tx
from gpurun.telemetry.forms import require_tellable

T = TypeVar("T")

AT_ONCE = 100
"""Rows of one transaction of a rotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretLine:
    """What a list shows."""

    name: str
    set_at: datetime
    set_by: str
    fault: str
    """Why it cannot be read, in half a sentence; empty when it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """What a rotation did."""

    key_id: str
    """The new key."""
    resealed: int
    dropped: int
    """Old keys that nothing needs any more."""
    lost: tuple[tuple[str, str], ...]
    """Repository and name of secrets in force that no key of the file opens."""


class SecretDesk:
    """`write` runs a function in one transaction of the server's database."""

    def __init__(self, write: Callable[[Callable[[Tx], object]], object], keys: KeyFile, chance: Chance) -> None:
        self._run = write
        self._keys = keys
        self._chance = chance

    def set(self, repo: str, name: str, value: SecretStr, *, who: str) -> bool:
        """True when it had a value before. Raises SecretRefused, UserError."""
        if told := name_fault(name):
            raise SecretRefused(told)
        require_settable(value)
        require_tellable((value,))
        scope = secret_scope(repo)
        # asked first: a database of no use must not make a key
        had = any(secret.name == name for secret in self._write(lambda tx: tx.secrets(scope)))
        with self._keys.changing():
            sealed = seal(self._keys.current(), scope, name, value)

            def change(tx: Tx) -> None:
                now = tx.now()
                version = KeptSecret(
                    id=self._chance.ulid(), repo=scope, name=name, sealed=sealed, set_at=now, set_by=who
                )
                tx.set_secret(version)
                tx.audit(_entry(tx, "secret_set", scope, name=name, by=who, version=version.id))
                tx.forget_replaced(unused_since=now - LINGER)

            self._write(change)
        return had

    def remove(self, repo: str, name: str, *, who: str) -> bool:
        """False when there was none."""
        scope = secret_scope(repo)

        def change(tx: Tx) -> bool:
            if not tx.remove_secret(scope, name):
                return False
            tx.audit(_entry(tx, "secret_removed", scope, name=name, by=who))
            tx.forget_replaced(unused_since=tx.now() - LINGER)
            return True

        return self._write(change)

    def lines(self, repo: str) -> tuple[SecretLine, ...]:
        """Those in force, by name."""
        lines = self._lines(repo)
        # looks twice: between the rows and the key file a rotation may have ended
        return self._lines(repo) if any(line.fault for line in lines) else lines

    def _lines(self, repo: str) -> tuple[SecretLine, ...]:
        kept = self._write(lambda tx: tx.secrets(secret_scope(repo)))
        return tuple(
            SecretLine(name=one.name, set_at=one.set_at, set_by=one.set_by, fault=fault(self._keys, one))
            for one in kept
        )

    def rotate(self, *, who: str) -> Rotated:
        """A new key, and everything sealed with it. May be ended at any moment and done again: a key stays in the file
        until no row needs it. Raises UserError.
        """
        with self._keys.changing():
            key = self._keys.add()
            resealed, after = 0, ""
            lost: list[tuple[str, str]] = []
            while True:
                turn = self._write(partial(self._reseal_some, key=key, after=after))
                resealed += turn.resealed
                lost += turn.lost
                if turn.last is None:
                    break
                after = turn.last
            dropped = self._keys.keep_only(self._write(lambda tx: tx.secret_keys()))
            self._write(lambda tx: tx.audit(_rotated(tx, key, resealed, who)))
        return Rotated(key_id=key.id, resealed=resealed, dropped=dropped, lost=tuple(lost))

    def _reseal_some(self, tx: Tx, *, key: Key, after: str) -> _Turn:
        rows = tx.sealed_otherwise(key.id, after=after, limit=AT_ONCE)
        resealed, lost = 0, []
        for row in rows:
            try:
                (given,) = opened(self._keys, (row,))
            except SecretUnavailable:
                if row.replaced_at is None:
                    lost.append((row.repo, row.name))
                continue
            resealed += tx.reseal(row, seal(key, row.repo, row.name, given.value))
        return _Turn(resealed, tuple(lost), rows[-1].id if rows else None)

    def _write(self, fn: Callable[[Tx], T]) -> T:
        done: list[T] = []
        self._run(lambda tx: done.append(fn(tx)))
        return done[-1]


@dataclass(frozen=True, slots=True)
class _Turn:
    """One transaction of a rotation."""

    resealed: int
    lost: tuple[tuple[str, str], ...]
    last: str | None
    """None: nothing was left."""


def _rotated(tx: Tx, key: Key, resealed: int, who: str) -> AuditEntry:
    data: dict[str, str | int | None] = {"key": key.id, "resealed": resealed, "by": who}
    return AuditEntry(at=tx.now(), actor="cli", kind="secrets_rotated", subject="secrets", data=data)


def _entry(tx: Tx, kind: str, scope: str, **data: str) -> AuditEntry:
    return AuditEntry(at=tx.now(), actor="cli", kind=kind, subject=f"repo:{scope}", data=data)
