"""Steps of run rows: planning pins, queued chooses an offer, active waits for its attempt."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import assert_never

from gpurun.domain.config import Job
from gpurun.domain.errors import (
    Bug,
    Refused,
    SecretUnavailable,
    Transient,
    UserError,
)
from gpurun.domain.offer import Offer
from gpurun.domain.plan import Resources
from gpurun.domain.run import Attempt, Pins, ProviderAccount, Quote, Run, RunState
from gpurun.flow import edges, failpoints
from gpurun.flow.commit import make_starter
from gpurun.flow.planning import (
    Change,
    Resolver,
    allowed,
    is_waiting_for_a_word,
    job_of,
    pinned_change,
    places_of,
    plan_of,
    raise_refusal,
    refusal,
    usable,
    wait_longest,
)
from gpurun.flow.services import CALL_TIMEOUT_S, MOVES, EngineServices, engine_audit
from gpurun.flow.worker import go_on
from gpurun.plan.lines import resources_line
from gpurun.ports.provider import Prepares, Provider, SaysWhyNot
from gpurun.ports.store import Kind, Lease, Tx
from gpurun.run.decide_attempt import may_create
from gpurun.run.decide_run import (
    AskOffers,
    Choose,
    PinNext,
    RunFacts,
    RunIsOver,
    SaveRun,
    decide_run,
    enter,
    fits,
    quote_of,
)
from gpurun.run.names import attempt_name
from gpurun.run.timers import DEADLINE_SPARE, PREPARE_LIMIT, WATCH_RUN
from gpurun.run.tokens import claim_token, token_sha256
from gpurun.run.trust import NO_SECRETS, may_hold_secrets
from gpurun.telemetry.meter import attempt_cost

ASK_FOR_LESS = "Ask for less under `resources` in `.gpurun.yml`, or have gpurun run on a machine that has it."

NONE_OF_THEM = "This server has none of the providers that the job may use:"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offered:
    """What the providers said."""

    offers: tuple[Offer, ...]
    """Cheapest first."""
    because: str
    """Why a provider could not be asked."""
    never: str
    """Why there will never be an offer; empty when there may."""
    too_much: bool
    """It is for what the job's `resources` ask."""


_Seen = tuple[Run, PinNext | AskOffers]


@dataclass(frozen=True, slots=True)
class _GoingOn:
    """After a transaction: the lease while the row is this worker's and due, and what comes next when it is a call.

    A run that got its attempt rests, and the lease is the attempt's.
    """

    lease: Lease | None = None
    seen: _Seen | None = None


class RunSteps:
    """Handler of `run` rows."""

    def __init__(self, services: EngineServices) -> None:
        self._s = services
        self._resolve = Resolver(services)
        self._up_at: datetime | None = None
        """Our first look, by the clock of the rows."""
        self._seen: dict[Lease, _Seen] = {}
        """Between two steps of one worker: what the transaction before read and decided."""

    async def __call__(self, lease: Lease) -> Lease | None:
        """What the rows alone decide is written at once; calls are a step of their own, on the row that it read."""
        seen = self._seen.pop(lease, None)
        match seen:
            case None:
                return await self._settle(lease, None)
            case (run, PinNext()):
                return await self._pin(run, lease)
            case (run, AskOffers()):
                return await self._choose_offer(run, lease)

    async def _settle(self, lease: Lease, offered: Callable[[Tx], RunFacts] | None) -> Lease | None:
        return self._remember(
            await edges.commit(self._s.store, failpoints.RUN_SETTLE, lambda tx: self._apply(tx, lease, offered))
        )

    def _remember(self, going_on: _GoingOn) -> Lease | None:
        if going_on.lease is not None and going_on.seen is not None:
            self._seen[going_on.lease] = going_on.seen
        return going_on.lease

    def _apply(self, tx: Tx, lease: Lease, offered: Callable[[Tx], RunFacts] | None) -> _GoingOn:
        """Writes what is decided, until the row rests or the next thing is a call."""
        for _ in range(MOVES):
            run, attempts, now = _rows(tx, lease.id)
            run = _seen_paused(tx, run)
            facts = self._plain_facts(now) if offered is None else offered(tx)
            facts = _with_approval(tx, run, attempts, facts, now)
            decision = decide_run(run, attempts, facts, now)
            if isinstance(decision, Choose) and offered is not None:
                # the row lock that this takes makes choosers of one provider count one after the other
                self._watch_soon(tx, decision.offer.provider)
                decision = decide_run(run, attempts, _with_approval(tx, run, attempts, offered(tx), now), now)
            match decision:
                case SaveRun(row):
                    _save(tx, run, row, lease)
                case Choose(offer):
                    return _GoingOn(self._add_attempt(tx, run, offer, lease))
                case PinNext() | AskOffers() if offered is None:
                    return _GoingOn(lease, (run, decision))
                case PinNext() | AskOffers():
                    tx.release(lease, due_at=now)  # the rows changed under the step
                case RunIsOver():
                    tx.release(lease, due_at=None)
                case _:
                    assert_never(decision)
            kept = go_on(tx, lease)
            if kept is None:
                return _GoingOn()
            lease, offered = kept, None
        return _GoingOn(lease)

    def _plain_facts(self, now: datetime) -> RunFacts:
        self._up_at = self._up_at or now
        return RunFacts(up_at=self._up_at)

    # planning

    async def _pin(self, run: Run, lease: Lease) -> Lease | None:
        """What was resolved is stored, also when another pin failed. Raises what a later try may mend."""
        pins = run.pins
        errors: tuple[Exception, ...] = ()
        try:
            job = allowed(self._s, run)
            await self._require_secrets(run, job)
            pins, errors = await self._resolve(run, job)
            raise_refusal(errors)
            wait_longest(errors)
            if errors and pins == run.pins:
                raise errors[0]
            quote = await self._quote(run, job, pins) if is_waiting_for_a_word(run, job, pins) else None
            change = pinned_change(run, job, pins, quote)
        except (UserError, Refused) as error:
            if run.config_text is None:
                pins = replace(pins, starter=await make_starter(self._s, run))
            change, errors = refusal(error, pins), ()
        kept = self._remember(
            await edges.commit(self._s.store, failpoints.RUN_PIN, lambda tx: self._apply_pin(tx, lease, change))
        )
        if errors and kept is not None:
            self._seen.pop(kept, None)
            raise errors[0]
        return kept

    def _apply_pin(self, tx: Tx, lease: Lease, change: Change) -> _GoingOn:
        run, attempts, now = _rows(tx, lease.id)
        decision = decide_run(run, attempts, RunFacts(), now)
        # cancelled or out of time meanwhile: the pin does not matter any more
        row = decision.row if isinstance(decision, SaveRun) else change(run, now)
        _save(tx, run, row, lease)
        kept = go_on(tx, lease)
        return _GoingOn() if kept is None else self._apply(tx, kept, None)

    async def _require_secrets(self, run: Run, job: Job) -> None:
        """Said before anything is fetched; the claim asks again. Raises SecretUnavailable."""
        if not job.secrets:
            return
        if not may_hold_secrets(run):
            raise SecretUnavailable(NO_SECRETS)
        await self._s.vault.check(run.repo, job.secrets)

    # queued

    async def _choose_offer(self, run: Run, lease: Lease) -> Lease | None:
        if run.plan is None:
            raise Bug(f"The run {run.id} is queued without a plan.")
        only = places_of(self._s, run, job_of(run))
        offered = await self._offers(run.plan.resources, only, not_on=run.pins.not_on)
        line = resources_line(run.config_text, run.job) if offered.too_much else 0
        return await self._settle(lease, lambda tx: replace(self._facts(tx, offered), resources_line=line))

    async def _quote(self, run: Run, job: Job, pins: Pins) -> Quote | None:
        """What people are asked to allow. None while nobody offers anything."""
        offered = await self._offers(job.needs(), places_of(self._s, run, job), not_on=pins.not_on)
        planned = replace(run, plan=plan_of(run, job, pins))
        quotes = [quote_of(planned, offer) for offer in offered.offers]
        cheapest = min(quotes, key=lambda quote: quote.worst_usd_micro, default=None)
        return next((quote for quote in quotes if fits(run, quote)), cheapest)

    async def _offers(self, need: Resources, only: tuple[str, ...] | None, *, not_on: Collection[str]) -> _Offered:
        """Over all providers, or those that the job names, in its order. Nothing is ever offered when each says so."""
        offers: list[Offer] = []
        because = ""
        never: list[str] = []
        asked = {name: one for name, one in usable(self._s.providers, only).items() if name not in not_on}
        for provider in asked.values():
            try:
                found = await edges.call(
                    failpoints.RUN_OFFERS, partial(provider.offers, need), timeout_s=CALL_TIMEOUT_S
                )
                why = "" if found else await self._why_never(provider, need)
            except (Transient, Refused) as error:  # the others may have one
                because = str(error)
                continue
            offers += found
            never += [why] if why else []
        if not asked and only is not None:
            never_there = f"{NONE_OF_THEM} {', '.join(only) or 'none'}."
            return _Offered(offers=(), because="", never=never_there, too_much=False)
        hopeless = bool(never) and len(never) == len(asked)
        rank = list(asked).index if only else lambda _: 0
        return _Offered(
            offers=tuple(sorted(offers, key=lambda offer: (rank(offer.provider), offer.usd_per_hour_micro))),
            because=because,
            never=f"{' '.join(never)} {ASK_FOR_LESS}" if hopeless else "",
            too_much=hopeless,
        )

    async def _why_never(self, provider: Provider, need: Resources) -> str:
        """Why there will never be an offer, as far as the provider can say."""
        if not isinstance(provider, SaysWhyNot):
            return ""
        why = await edges.call(failpoints.RUN_WHY_NEVER, partial(provider.why_never, need), timeout_s=CALL_TIMEOUT_S)
        return why or ""

    def _facts(self, tx: Tx, offered: _Offered) -> RunFacts:
        offers, because = offered.offers, offered.because
        names = {offer.provider for offer in offers}
        closed = {name for name in names if not may_create(tx.account(name), tx.now())}
        if closed:
            because = because or f"{', '.join(sorted(closed))} cannot be listed at the moment, so nothing is started."
        free = {name: self._s.slots.get(name, 0) - len(tx.live_attempts(name)) for name in names - closed}
        return RunFacts(
            offers=tuple(offer for offer in offers if offer.provider not in closed),
            free_slots=free,
            slots=self._s.slots,
            no_offer_because=because,
            never=offered.never,
            is_listing=any(_is_listing(tx.account(name)) for name in closed),
        )

    def _watch_soon(self, tx: Tx, name: str) -> None:
        """The observer looks in its pace for live attempts from now on, and not in the way of the create."""
        pace = timedelta(seconds=self._s.provider(name).observe_every_s)
        tx.wake_by(Kind.PROVIDER_ACCOUNT, name, tx.now() + pace)

    def _add_attempt(self, tx: Tx, run: Run, offer: Offer, lease: Lease) -> Lease | None:
        """The lease of the new attempt: this worker goes on with it in the place that the run's step had."""
        now = tx.now()
        row = replace(enter(run, RunState.ACTIVE, now), attempts=run.attempts + 1, due_at=now + WATCH_RUN)
        if not tx.save_run(row, lease):
            return None
        attempt = self._new_attempt(row, offer, now)
        tx.add_attempt(attempt)
        tx.audit(
            engine_audit(
                now, "attempt_chosen", f"attempt:{attempt.id}", run=run.id, provider=offer.provider, offer=offer.id
            )
        )
        tx.raise_rev(run.id, final=False, urgent=False)
        return go_on(tx, Lease(Kind.ATTEMPT, attempt.id, lease.token, tries=0))

    def _new_attempt(self, run: Run, offer: Offer, now: datetime) -> Attempt:
        assert run.plan is not None
        limit = timedelta(seconds=offer.boot_timeout_s + run.plan.max_duration_s) + DEADLINE_SPARE
        if isinstance(self._s.provider(offer.provider), Prepares):
            limit += PREPARE_LIMIT
        attempt_id = self._s.chance.ulid()
        deadline = (now + limit).replace(microsecond=0)
        return Attempt(
            id=attempt_id,
            run_id=run.id,
            number=run.attempts,
            offer=offer,
            name=attempt_name(self._s.install_id, attempt_id, deadline),
            claim_sha256=token_sha256(claim_token(self._s.install_secret, attempt_id)),
            created_at=now,
            hard_deadline=deadline,
            state_since=now,
            due_at=now,
        )


def _is_listing(account: ProviderAccount | None) -> bool:
    """Nothing is wrong there: its observer has only not looked yet, or not lately."""
    return account is None or account.broken_since is None


def _rows(tx: Tx, run_id: str) -> tuple[Run, tuple[Attempt, ...], datetime]:
    run = tx.run(run_id)
    if run is None:
        raise Bug(f"The run {run_id} vanished.")
    return run, tx.attempts(run_id), tx.now()


def _with_approval(tx: Tx, run: Run, attempts: tuple[Attempt, ...], facts: RunFacts, now: datetime) -> RunFacts:
    """What a run of code that is not the repository's own goes by, and one with a ceiling of its own."""
    asks = run.untrusted is not None or run.state is RunState.WAITING_APPROVAL
    if run.pr is None or not (asks or run.narrow.max_usd_micro is not None):
        return facts
    costs = (attempt_cost(attempt, now) for attempt in attempts)
    spent = sum(cost.usd_micro for cost in costs if cost is not None)
    approval = tx.hold_approval(run.repo, run.pr) if asks else None
    return replace(facts, approval=approval, spent_usd_micro=spent)


def _seen_paused(tx: Tx, run: Run) -> Run:
    """A run that was made while somebody paused its repository does not know of it yet."""
    if run.paused or run.pr is None or run.state not in (RunState.PLANNING, RunState.QUEUED):
        return run
    if tx.pause_of(run.repo) is None:
        return run
    tx.hold_runs(run.repo)
    return replace(run, paused=True)


def _save(tx: Tx, before: Run, row: Run, lease: Lease) -> None:
    if not _give_back(tx, before, row, lease):
        return
    if _shown(before) != _shown(row):
        tx.raise_rev(row.id, final=row.state is RunState.ENDED, urgent=_needs(before) != _needs(row))
    if row.pr is not None and _stands(before) != _stands(row):
        tx.raise_gate(row.repo, row.pr)
    if before.state is not row.state:
        tx.audit(
            engine_audit(
                tx.now(),
                f"run_{row.state}",
                f"run:{row.id}",
                verdict=row.verdict,
                reason=row.reason,
                plan=row.plan_digest,
                approval=row.approval,
            )
        )
    if row.state is RunState.ENDED:
        for attempt in tx.attempts(row.id):
            tx.wake(Kind.ATTEMPT, attempt.id)


def _give_back(tx: Tx, before: Run, row: Run, lease: Lease) -> bool:
    """Most looks at an active run change nothing but the time of the next one. False: the lease was lost."""
    if replace(row, due_at=before.due_at) == before:
        return tx.release(lease, due_at=row.due_at)
    return tx.save_run(row, lease)


def _needs(run: Run) -> tuple[object, ...]:
    """What a person has to do, or had to: told at once."""
    waits = run.state is RunState.WAITING_APPROVAL
    return run.paused, waits, run.detail if waits else "", run.quote if waits else None


def _stands(run: Run) -> tuple[object, ...]:
    """What the gate tells of a run: nothing of its progress."""
    return run.verdict, run.state is RunState.WAITING_APPROVAL


def _shown(run: Run) -> tuple[object, ...]:
    """Engine-owned columns that comment and check tell before the end."""
    return run.state, run.detail, run.pins, run.last_error, run.quote
