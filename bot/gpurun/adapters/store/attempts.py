"""Attempts: engine-owned columns under the lease, facts without it (docs/concepts/engine.md, R3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, bindparam, or_, select, update

from gpurun.adapters.store import tables
from gpurun.adapters.store.base import NOW, Row, TransactionBase, Values, Whole, is_open
from gpurun.adapters.store.codec import Moment
from gpurun.domain.offer import DiskUse, InstanceState
from gpurun.domain.run import Attempt, AttemptState, Phase, Result
from gpurun.ports.store import Kind, Lease

REPEAT_CLAIM = timedelta(seconds=120)
"""How long one boot may repeat its claim, for an answer that got lost."""

_IDENTITY = ("id", "run_id", "number", "offer", "name", "claim_sha256", "created_at", "hard_deadline")
_ENGINE_OWNED = (
    "state", "state_since", "tries", "last_error", "preparing", "create_sent_at", "looks", "claim_revoked_at",
    "run_deadline", "stop_asked_at", "destroy_asked_at", "gone_at", "unconfirmed_at",
)  # fmt: skip
_FACTS = (
    "instance_ref", "claimed_at", "boot_id", "token_sha256", "phase", "phase_times", "last_seen_at", "observed",
    "observed_at", "observed_gone_at", "exit_code", "disk", "result", "result_at", "landed",
)  # fmt: skip
_FIELDS = (*_IDENTITY, *_ENGINE_OWNED, *_FACTS, "due_at")

_ID = tables.attempt.c.id == bindparam("id_")
_BY_ID = select(tables.attempt).where(_ID)
_OF_RUN = select(tables.attempt).where(tables.attempt.c.run_id == bindparam("run_")).order_by(tables.attempt.c.number)
_LOCKED = _BY_ID.with_for_update()
_FACT = update(tables.attempt).where(_ID)
_REF = select(tables.attempt.c.instance_ref).where(_ID)
_RUN_OF = select(tables.attempt.c.run_id).where(_ID)
_SAW = _FACT.values(last_seen_at=NOW)


_LIVE_IDS = select(tables.attempt.c.id).where(tables.attempt.c.state.not_in((AttemptState.GONE, AttemptState.VOID)))
_AT = bindparam("at_", type_=Moment())
_OBSERVED_AGAIN = (
    update(tables.attempt)
    .where(
        tables.attempt.c.id.in_(bindparam("ids_", expanding=True)),
        or_(tables.attempt.c.observed_at.is_(None), tables.attempt.c.observed_at < _AT),
    )
    .values(observed_at=_AT)
)

PHASE_PAUSE = timedelta(seconds=0.2)
"""A job of a moment goes through all phases in less, and the engine has something to do only at its end."""

MANY = 500
"""Ids of one statement."""


class AttemptTable(TransactionBase):
    """`ports.store.AttemptRows`."""

    def add_attempt(self, attempt: Attempt) -> None:
        values = {name: getattr(attempt, name) for name in _FIELDS}
        self._change(self._insert(tables.attempt).values(provider=attempt.offer.provider, **values))

    def attempt(self, id: str) -> Attempt | None:
        return next(iter(self._wholes(_ATTEMPTS, _BY_ID, {"id_": id})), None)

    def attempts(self, run_id: str) -> tuple[Attempt, ...]:
        return self._wholes(_ATTEMPTS, _OF_RUN, {"run_": run_id})

    def live_attempts(self, provider: str | None = None) -> tuple[Attempt, ...]:
        table = tables.attempt
        live = select(table).where(table.c.state.not_in((AttemptState.GONE, AttemptState.VOID)))
        if provider is not None:
            live = live.where(table.c.provider == provider)
        return tuple(map(_attempt, self._all(live.order_by(table.c.created_at, table.c.id))))

    def live_attempt_ids(self) -> frozenset[str]:
        return frozenset(self._connection.execute(_LIVE_IDS).scalars())

    def save_attempt(self, attempt: Attempt, lease: Lease) -> bool:
        values = {name: getattr(attempt, name) for name in _ENGINE_OWNED}
        return self._give_back(lease, values, due_at=attempt.due_at)

    def send_create(self, lease: Lease) -> bool:
        table, now = tables.attempt, self.now()
        won = self._change(
            update(table)
            .where(table.c.id == lease.id, table.c.lease_token == lease.token, table.c.create_sent_at.is_(None))
            .values(create_sent_at=now, state=AttemptState.CREATING, state_since=now)
        )
        return won > 0

    def set_instance_ref(self, attempt_id: str, ref: str) -> bool:
        table = tables.attempt
        if self._fact(attempt_id, {"instance_ref": ref, "instance_ref_at": self.now()}, table.c.instance_ref.is_(None)):
            self.wake(Kind.ATTEMPT, attempt_id)
            return True
        return self._connection.execute(_REF, {"id_": attempt_id}).scalar_one_or_none() == ref

    def set_claimed(self, attempt_id: str, *, boot_id: str, token_sha256: str, landed: Mapping[str, str]) -> bool:
        table, now = tables.attempt, self.now()
        wanted = (table.c.claim_revoked_at.is_(None), table.c.result.is_(None), is_open(Kind.ATTEMPT))
        first = {
            "claimed_at": now,
            "boot_id": boot_id,
            "token_sha256": token_sha256,
            "landed": dict(landed),
            "last_seen_at": now,
        }
        if self._fact(attempt_id, first, table.c.claimed_at.is_(None), *wanted):
            self.saw(attempt_id, phase=Phase.CLAIMED)
            return True
        same_boot = (table.c.boot_id == boot_id, table.c.claimed_at >= now - REPEAT_CLAIM)
        return self._fact(attempt_id, {"last_seen_at": now}, *same_boot, *wanted)

    def set_result(self, attempt_id: str, result: Result) -> bool:
        table = tables.attempt
        if not self._fact(attempt_id, {"result": result, "result_at": self.now()}, table.c.result.is_(None)):
            return False
        self.wake(Kind.ATTEMPT, attempt_id)
        self.wake(Kind.RUN, self._connection.execute(_RUN_OF, {"id_": attempt_id}).scalar_one())
        return True

    def saw(self, attempt_id: str, *, phase: Phase | None = None) -> None:
        if phase is None:
            # Not news: it happens with every append, and only the quiet timer of the engine reads it.
            self._change_quietly(_SAW, {"id_": attempt_id, "now_": self.now()})
            return
        row = self._locked(attempt_id)
        if row is None:
            return
        values: dict[str, Any] = {"last_seen_at": self.now()}
        fresh = phase not in row["phase_times"]  # a repeated or late request does not move the agent back
        if fresh:
            values |= {"phase": phase, "phase_times": {**row["phase_times"], phase.value: self.now()}}
        self._fact(attempt_id, values)
        if fresh:
            self.wake_by(Kind.ATTEMPT, attempt_id, self.now() + PHASE_PAUSE)

    def note_time(self, attempt_id: str, what: str, at: datetime) -> None:
        row = self._locked(attempt_id)
        if row is not None and what not in row["phase_times"]:
            self._fact(attempt_id, {"phase_times": {**row["phase_times"], what: at}})

    def observed(
        self,
        attempt_id: str,
        state: InstanceState | None,
        *,
        at: datetime,
        exit_code: int | None = None,
        disk: DiskUse | None = None,
    ) -> None:
        row = self._locked(attempt_id)
        if row is None or (row["observed_at"] is not None and at < row["observed_at"]):
            return
        values = _missing(row, at) if state is None else _seen(row, state, at, exit_code) | _measured(row, disk)
        if values:
            self._fact(attempt_id, values)
        quiet = {"observed_at"} if disk is not None and disk.is_too_much else {"observed_at", "disk"}
        if values.keys() - quiet:
            self.wake(Kind.ATTEMPT, attempt_id)

    def observed_again(self, attempt_ids: Sequence[str], *, at: datetime) -> None:
        for first in range(0, len(attempt_ids), MANY):
            some = list(attempt_ids[first : first + MANY])
            self._change_quietly(_OBSERVED_AGAIN, {"ids_": some, "at_": at})

    def _locked(self, attempt_id: str) -> Row | None:
        return self._one(_LOCKED, {"id_": attempt_id})

    def _fact(self, attempt_id: str, values: Values, *conditions: ColumnElement[bool]) -> bool:
        fact = _FACT.where(*conditions) if conditions else _FACT
        return self._change(fact, {"id_": attempt_id, **values}) > 0


def _seen(row: Row, state: InstanceState, at: datetime, exit_code: int | None) -> dict[str, Any]:
    """Columns that a sighting changes. An instance that was thought gone and is listed again is not gone."""
    values: dict[str, Any] = {"observed_at": at}
    if exit_code is not None and row["exit_code"] is None:
        values["exit_code"] = exit_code
    if row["observed"] != state:
        values["observed"] = state
    if row["observed_gone_at"] is not None:
        values["observed_gone_at"] = None
    return values


def _measured(row: Row, disk: DiskUse | None) -> dict[str, Any]:
    """The column that a measure changes. What was too much stays, so that the reason of an end does not change."""
    known: DiskUse | None = row["disk"]
    if disk is None or disk == known:
        return {}
    if known is not None and known.is_too_much and (known.host_free_mib is not None or disk.host_free_mib is None):
        return {}
    return {"disk": disk}


def _missing(row: Row, at: datetime) -> dict[str, Any]:
    """Columns that an absence changes: only for an instance that the list could have held."""
    known_since = row["observed_at"] or row["instance_ref_at"]
    if row["observed_gone_at"] is not None or known_since is None or known_since > at:
        return {}
    return {"observed_gone_at": at}


def _attempt(row: Row) -> Attempt:
    return Attempt(**{name: row[name] for name in _FIELDS})


_ATTEMPTS = Whole(tables.attempt, _attempt)
