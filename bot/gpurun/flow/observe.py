"""The observer, which is the reaper too: one whole list per provider feeds every attempt, and finds what nobody owns.

The list comes first, the rows are read after it: an instance that is in the list and in no row made its row before
the list was asked for, or has none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from gpurun.domain.errors import Bug, NotYetDestroyed, ProviderRefused, Refused, Transient
from gpurun.domain.offer import Owned
from gpurun.domain.run import Attempt, AttemptState, ProviderAccount, Stray, StrayState
from gpurun.flow import edges, failpoints
from gpurun.flow.services import CALL_TIMEOUT_S, EngineServices, engine_audit
from gpurun.flow.worker import if_mine
from gpurun.ports.provider import Provider
from gpurun.ports.store import Kind, Lease, Tx
from gpurun.run.names import parse_name
from gpurun.run.timers import (
    DESTROY_DOUBT,
    OBSERVE_IDLE_S,
    OBSERVE_LIVE_S,
    STRAY_SIGHTINGS,
    UNCONFIRMED_POLL,
    backoff,
)

log = structlog.get_logger()


class Observer:
    """Handler of `provider_account` rows."""

    def __init__(self, services: EngineServices) -> None:
        self._s = services

    async def __call__(self, lease: Lease) -> None:
        """One whole list, or an exception that says nothing about any instance."""
        provider = self._s.provider(lease.id)
        asked_at = await self._s.store.read(lambda tx: tx.now())
        try:
            owned = await edges.call(
                failpoints.OBSERVE_LIST, lambda: provider.list_owned(self._s.prefix), timeout_s=CALL_TIMEOUT_S
            )
        except ProviderRefused as refused:
            log.warning("provider_refused_us", provider=lease.id, error=str(refused))
            message = str(refused)
            await edges.commit(self._s.store, failpoints.OBSERVE_BROKEN, lambda tx: _broken(tx, lease, message))
            return
        await edges.commit(self._s.store, failpoints.OBSERVE_SETTLE, lambda tx: self._apply(tx, lease, owned, asked_at))

    def _apply(self, tx: Tx, lease: Lease, owned: tuple[Owned, ...], asked_at: datetime) -> None:
        account = _account(tx, lease.id)
        live = tx.live_attempts(lease.id)
        by_name = {attempt.name: attempt for attempt in live}
        as_before = []
        for instance in owned:
            owner = by_name.get(instance.name)
            if owner is not None and _says_nothing_new(owner, instance):
                as_before.append(owner.id)
            else:
                self._sighting(tx, lease.id, owner, instance, asked_at)
        tx.observed_again(as_before, at=asked_at)
        listed = {instance.ref for instance in owned}
        lag = timedelta(seconds=self._s.provider(lease.id).listed_within_s)
        for attempt in live:
            if attempt.instance_ref not in listed and _should_be_listed(attempt, asked_at - lag):
                tx.observed(attempt.id, None, at=asked_at)
            if _should_end(attempt, tx.now()):
                tx.wake(Kind.ATTEMPT, attempt.id)
        again = timedelta(seconds=_interval_s(self._s.provider(lease.id), live))
        clean = replace(account, list_ok_at=asked_at, broken_since=None, tries=0, last_error="")
        tx.save_account(replace(clean, due_at=tx.now() + again), lease)

    def _sighting(self, tx: Tx, provider: str, owner: Attempt | None, instance: Owned, asked_at: datetime) -> None:
        if owner is not None and tx.set_instance_ref(owner.id, instance.ref):
            tx.observed(owner.id, instance.state, at=asked_at, exit_code=instance.exit_code, disk=instance.disk)
            return
        if _ended_since(tx, instance, asked_at):
            return
        if any(known.ref == instance.ref and known.state is not StrayState.GONE for known in tx.strays(provider)):
            return
        now = tx.now()
        tx.add_stray(
            Stray(
                id=self._s.chance.ulid(),
                provider=provider,
                ref=instance.ref,
                name=instance.name,
                first_seen=now,
                state=StrayState.SEEN,
                due_at=now + STRAY_SIGHTINGS,
            )
        )
        tx.audit(engine_audit(now, "stray_seen", f"provider:{provider}", ref=instance.ref, name=instance.name))


class StraySteps:
    """Handler of `stray` rows: a second look after two minutes, then destroy until positively gone."""

    def __init__(self, services: EngineServices) -> None:
        self._s = services

    async def __call__(self, lease: Lease) -> None:
        """One call, one outcome."""
        stray, now = await self._s.store.read(lambda tx: (_stray(tx, lease.id), tx.now()))
        provider = self._s.provider(stray.provider)
        if stray.state is StrayState.DESTROYING:
            outcome = await self._destroy(provider, stray)
        elif now < stray.first_seen + STRAY_SIGHTINGS:
            outcome = _Outcome(again=stray.first_seen + STRAY_SIGHTINGS - now)
        else:
            outcome = await self._look_again(provider, stray)
        await edges.commit(self._s.store, failpoints.STRAY_SETTLE, lambda tx: _save_stray(tx, lease, outcome))

    async def _look_again(self, provider: Provider, stray: Stray) -> _Outcome:
        instance = await edges.call(
            failpoints.STRAY_DESCRIBE, lambda: provider.describe(stray.ref), timeout_s=CALL_TIMEOUT_S
        )
        return _Outcome(gone=instance is None, seen_again=instance is not None)

    async def _destroy(self, provider: Provider, stray: Stray) -> _Outcome:
        try:
            await edges.call(
                failpoints.STRAY_DESTROY,
                if_mine(lambda: provider.destroy(stray.ref), for_s=CALL_TIMEOUT_S),
                timeout_s=CALL_TIMEOUT_S,
            )
        except (NotYetDestroyed, Transient, Refused) as error:
            return _Outcome(error=str(error))
        return _Outcome(gone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What a stray's step found."""

    gone: bool = False
    seen_again: bool = False
    error: str = ""
    again: timedelta | None = None


def _ended_since(tx: Tx, instance: Owned, asked_at: datetime) -> bool:
    """The list may be older than the confirmed end of an attempt that used the instance."""
    name = parse_name(instance.name)
    owner = tx.attempt(name.attempt_id) if name is not None else None
    if owner is None or owner.instance_ref != instance.ref:
        return False
    return owner.gone_at is not None and owner.gone_at >= asked_at


def _save_stray(tx: Tx, lease: Lease, outcome: _Outcome) -> None:
    stray, now = _stray(tx, lease.id), tx.now()
    if outcome.gone:
        row = replace(stray, state=StrayState.GONE, due_at=None, last_error="")
    elif outcome.seen_again and not _owned_now(tx, stray):
        row = replace(stray, state=StrayState.DESTROYING, due_at=now, tries=0)
    elif outcome.error:
        late = now >= stray.first_seen + DESTROY_DOUBT
        again = UNCONFIRMED_POLL if late else backoff(stray.tries)
        if late:
            log.error("stray_unconfirmed", provider=stray.provider, ref=stray.ref, error=outcome.error)
        row = replace(stray, tries=stray.tries + 1, last_error=outcome.error, due_at=now + again)
    else:
        row = replace(stray, due_at=now + (outcome.again or STRAY_SIGHTINGS))
    if tx.save_stray(row, lease) and row.state is not stray.state:
        tx.audit(engine_audit(now, f"stray_{row.state}", f"provider:{row.provider}", ref=row.ref, name=row.name))


def _owned_now(tx: Tx, stray: Stray) -> bool:
    """An attempt uses it, or may adopt it yet."""
    return any(
        attempt.instance_ref == stray.ref or (attempt.instance_ref is None and attempt.name == stray.name)
        for attempt in tx.live_attempts(stray.provider)
    )


def _broken(tx: Tx, lease: Lease, error: str) -> None:
    account, now = _account(tx, lease.id), tx.now()
    row = replace(account, broken_since=account.broken_since or now, tries=account.tries + 1, last_error=error)
    saved = tx.save_account(replace(row, due_at=now + timedelta(seconds=OBSERVE_LIVE_S)), lease)
    if saved and account.broken_since is None:
        tx.audit(engine_audit(now, "provider_broken", f"provider:{lease.id}", error=error))


def _says_nothing_new(attempt: Attempt, instance: Owned) -> bool:
    """Of a thousand instances nearly all are as they were, and share one statement."""
    return (
        attempt.instance_ref == instance.ref
        and attempt.observed is instance.state
        and attempt.observed_gone_at is None
        and instance.exit_code in {None, attempt.exit_code}
        and instance.disk in {None, attempt.disk}
    )


def _should_be_listed(attempt: Attempt, made_until: datetime) -> bool:
    """It was seen before, or was made so early that the list must hold it."""
    if attempt.instance_ref is None or attempt.create_sent_at is None:
        return False
    return attempt.observed_at is not None or attempt.create_sent_at <= made_until


def _should_end(attempt: Attempt, now: datetime) -> bool:
    """Its own timers should have done it; the reaper does not rely on them."""
    if attempt.state is AttemptState.DESTROYING:  # it has a pace of its own
        return False
    return attempt.result is not None or now >= attempt.hard_deadline


def _interval_s(provider: Provider, live: tuple[Attempt, ...]) -> float:
    return provider.observe_every_s if live else OBSERVE_IDLE_S


def _account(tx: Tx, provider: str) -> ProviderAccount:
    account = tx.account(provider)
    if account is None:
        raise Bug(f"The account row of {provider!r} vanished.")
    return account


def _stray(tx: Tx, id: str) -> Stray:
    stray = tx.stray(id)
    if stray is None:
        raise Bug(f"The stray {id} vanished.")
    return stray
