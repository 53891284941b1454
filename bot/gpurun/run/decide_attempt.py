"""What happens next to an attempt. Pure; the table `attempt` of docs/concepts/engine.md.

A step decides twice: first on the rows alone, which may ask for one call, then again on fresh rows with the call's
answer in the facts. What an answer means is thus decided here, on what is true when it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal, assert_never

from gpurun.domain.offer import InstanceState, Preparation
from gpurun.domain.run import Attempt, AttemptState, Phase, ProviderAccount, Result, ResultKind, Run, RunState
from gpurun.provider_kit.boot import exit_sentence
from gpurun.run.disk import end_for_disk, stop_grace, told_or_for_disk
from gpurun.run.timers import (
    DEADLINE_GRACE,
    DESTROY_DOUBT,
    GIVE_UP_TRIES,
    LIST_FRESH,
    LOOKING_LIMIT,
    LOOKS,
    PREPARE_LIMIT,
    PREPARE_PACE,
    QUIET,
    SILENT,
    UNCONFIRMED_POLL,
    UNSURE_LIMIT,
    WATCH,
    backoff,
)

IMAGE_FAULTS = frozenset({"no_python", "old_python", "missing_module"})
"""Last words that no other attempt would change: the user's image cannot run the agent."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Create made an instance."""

    ref: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The provider said no and made nothing."""

    kind: Literal["capacity", "quota", "auth", "invalid"]
    message: str


@dataclass(frozen=True, slots=True)
class WrongWeights:
    """The hub does not have what the plan pins. Nothing was rented."""

    message: str


@dataclass(frozen=True, slots=True)
class BuildFailed:
    """The job's Dockerfile cannot be built. Nothing was rented."""

    message: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """Create may have made an instance. `ref`: an id that stood in the error."""

    message: str
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class LastWords:
    """What the instance printed before it died without a claim. `reason` is one word, empty when it gave none."""

    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What the provider's own log says of an attempt that was live. `result` is what its agent could not tell us."""

    result: Result | None = None


@dataclass(frozen=True, slots=True)
class Destroyed:
    """Positively gone."""


@dataclass(frozen=True, slots=True)
class StillThere:
    """Destroy has not ended it yet."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """What is known besides the rows. From `prepared` on: the answer to this step's call; None: not asked."""

    account: ProviderAccount | None
    receiver_up_at: datetime
    """Since when agents could reach us."""
    prepared: Preparation | Rejected | WrongWeights | BuildFailed | None = None
    created: Accepted | Rejected | Unclear | None = None
    found: tuple[str, ...] | None = None
    """Refs of all instances with exactly this name."""
    last_words: LastWords | None = None
    left_behind: LeftBehind | None = None
    destroyed: Destroyed | StillThere | None = None
    times: Mapping[str, datetime] = field(default_factory=dict)
    """What the call showed to have begun or ended, for `Attempt.phase_times`; whatever is decided."""
    let_go: bool = False
    """This step closed what was open for the attempt on this machine. Nobody does it after an end as void."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Call `prepare`."""


@dataclass(frozen=True, slots=True)
class SendCreate:
    """Win the CAS, then call create once."""


@dataclass(frozen=True, slots=True)
class Look:
    """List by exact name."""


@dataclass(frozen=True, slots=True)
class AskLastWords:
    """Read what the provider kept of the output."""


@dataclass(frozen=True, slots=True)
class AskLastLog:
    """Read the provider's own log once, for what the agent could not send."""


@dataclass(frozen=True, slots=True)
class Destroy:
    """Call destroy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveAttempt:
    """Write these engine-owned columns and set-once facts."""

    row: Attempt
    result: Result | None = None
    """To be set; the first one wins."""
    ref: str | None = None
    """To be set as `instance_ref`; another one there already makes this one a stray."""
    strays: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptIsOver:
    """Terminal absorbs."""


AttemptDecision = Prepare | SendCreate | Look | AskLastWords | AskLastLog | Destroy | SaveAttempt | AttemptIsOver


def decide_attempt(attempt: Attempt, run: Run, facts: AttemptFacts, now: datetime) -> AttemptDecision:  # noqa: PLR0911 - one return a state
    """The next thing for this attempt: one call, or what to write."""
    match attempt.state:
        case AttemptState.CHOSEN:
            return _chosen(attempt, run, facts, now)
        case AttemptState.CREATING:
            return _creating(attempt, facts, now)
        case AttemptState.LOOKING:
            return _looking(attempt, run, facts, now)
        case AttemptState.UNSURE:
            return _unsure(attempt, facts, now)
        case AttemptState.BOOTING:
            return _booting(attempt, run, facts, now)
        case AttemptState.LIVE:
            return _live(attempt, run, facts, now)
        case AttemptState.DESTROYING:
            return _destroying(attempt, facts, now)
        case AttemptState.GONE | AttemptState.VOID:
            return AttemptIsOver()
        case _:
            assert_never(attempt.state)


def may_create(account: ProviderAccount | None, now: datetime) -> bool:
    """What is created must be listed: no clean list, no create."""
    return (
        account is not None
        and account.broken_since is None
        and account.list_ok_at is not None
        and now < account.list_ok_at + LIST_FRESH
    )


def _chosen(attempt: Attempt, run: Run, facts: AttemptFacts, now: datetime) -> AttemptDecision:  # noqa: PLR0911 - guards
    called_off = attempt.result or _called_off(attempt, run)
    if called_off is not None:
        return _void(attempt, called_off, now)
    if now >= attempt.created_at + PREPARE_LIMIT:
        return _void(attempt, _lost("prepare", attempt.preparing or attempt.last_error), now)
    if not may_create(facts.account, now):
        return _stay(replace(attempt, preparing="waiting for the provider's list"), now + timedelta(seconds=1))
    match facts.prepared:
        case None:
            return Prepare()
        case Rejected(kind, message):
            return _void(attempt, _lost(kind, message), now)
        case WrongWeights(message):
            return _void(attempt, Result(kind=ResultKind.FAILED, reason="weights_mismatch", detail=message), now)
        case BuildFailed(message):
            return _void(attempt, Result(kind=ResultKind.FAILED, reason="build", detail=message), now)
        case Preparation(ready=True):
            return SendCreate()
        case Preparation(message=message):
            return _stay(replace(attempt, preparing=message), now + PREPARE_PACE)
        case _:
            assert_never(facts.prepared)


def _creating(attempt: Attempt, facts: AttemptFacts, now: datetime) -> AttemptDecision:
    match facts.created:
        case None | Unclear(ref=None):
            # None: found by a successor. Nobody ever calls create again.
            message = facts.created.message if facts.created else ""
            return SaveAttempt(row=replace(_enter(attempt, AttemptState.LOOKING, now), last_error=message))
        case Accepted(ref):
            return SaveAttempt(row=_enter(attempt, AttemptState.BOOTING, now), ref=ref)
        case Rejected(kind, message):
            return _nothing_made(attempt, _lost(kind, message), now)
        case Unclear(message, ref):
            assert ref is not None
            return replace(_nothing_made(attempt, _lost("create", message), now), strays=(ref,))
        case _:
            assert_never(facts.created)


def _nothing_made(attempt: Attempt, result: Result, now: datetime) -> SaveAttempt:
    if attempt.instance_ref is not None:  # the observer knows better than create's answer
        return _destroy(attempt, result, now)
    return _void(attempt, result, now)


def _looking(attempt: Attempt, run: Run, facts: AttemptFacts, now: datetime) -> AttemptDecision:
    called_off = attempt.result or _called_off(attempt, run)
    if attempt.instance_ref is not None or facts.found:
        return _found(attempt, called_off, facts.found or (), now)
    if called_off is not None and attempt.result is None:
        return _stay(attempt, now, result=called_off)  # the verdict now; looks go on
    looks = attempt.looks if facts.found is None else attempt.looks + 1
    out_of_looks = looks >= len(LOOKS) and attempt.claimed_at is None  # who claimed exists, however late the list is
    if out_of_looks or now >= attempt.state_since + LOOKING_LIMIT:
        row = replace(_enter(attempt, AttemptState.UNSURE, now), looks=looks, claim_revoked_at=now)
        doubt = "The provider gave no clear answer to the create call, and no instance was found."
        return SaveAttempt(row=row, result=_unless_set(attempt, _lost("create", doubt)))
    look_at = attempt.state_since + (LOOKS[looks] if looks < len(LOOKS) else LOOKS[-1] * (looks - len(LOOKS) + 2))
    if facts.found is not None or now < look_at:
        return _stay(replace(attempt, looks=looks), look_at)
    return Look()


def _found(attempt: Attempt, called_off: Result | None, found: tuple[str, ...], now: datetime) -> SaveAttempt:
    ref = attempt.instance_ref or found[0]
    others = tuple(other for other in found if other != ref)
    if others:
        called_off = called_off or _lost("create", "The provider made several instances of one name.")
    if called_off is not None:
        return replace(_destroy(attempt, called_off, now), ref=ref, strays=others)
    return SaveAttempt(row=_enter(attempt, AttemptState.BOOTING, now), ref=ref)


def _unsure(attempt: Attempt, facts: AttemptFacts, now: datetime) -> AttemptDecision:
    result = attempt.result or _lost("create")
    if attempt.instance_ref is not None:
        return _destroy(attempt, result, now)
    clean_until = facts.account.list_ok_at if facts.account else None
    void_at = attempt.state_since + UNSURE_LIMIT
    if clean_until is not None and clean_until >= void_at:
        return _void(attempt, result, now)
    return _stay(attempt, max(void_at, now + WATCH), result=_unless_set(attempt, result))


def _booting(attempt: Attempt, run: Run, facts: AttemptFacts, now: datetime) -> AttemptDecision:
    if attempt.claimed_at is not None:  # also when it was called off: user code may run by now, and gets its time
        return SaveAttempt(row=_enter(attempt, AttemptState.LIVE, now))
    called_off = attempt.result or _called_off(attempt, run)
    if called_off is not None:
        return _destroy(attempt, called_off, now)
    boot_limit = (attempt.create_sent_at or attempt.state_since) + timedelta(seconds=attempt.offer.boot_timeout_s)
    boot_limit = min(boot_limit, attempt.hard_deadline)
    ended = _instance_ended(attempt)
    if not ended and now < boot_limit:
        return _stay(attempt, min(boot_limit, now + WATCH))
    if facts.last_words is None:
        return AskLastWords()
    return _destroy(attempt, _why_no_claim(facts.last_words, ended or "boot_timeout"), now)


def _why_no_claim(words: LastWords, ended: str) -> Result:
    if words.reason in IMAGE_FAULTS:
        return Result(kind=ResultKind.FAILED, reason=words.reason, detail=words.sentence)
    story = {
        "exited": "The instance ended before the agent spoke.",
        "gone": "The instance vanished before the agent spoke.",
        "boot_timeout": "The agent did not speak in time.",
    }[ended]
    reason = "boot_timeout" if ended == "boot_timeout" else "boot"
    return _lost(reason, f"{story} {words.sentence}".strip())


def _live(attempt: Attempt, run: Run, facts: AttemptFacts, now: datetime) -> AttemptDecision:
    if attempt.result is not None:
        return _destroy(attempt, attempt.result, now)
    ours = _end_of_live(attempt, run, facts, now)
    if ours is not None:
        left = facts.left_behind
        if left is None:
            if attempt.tries < GIVE_UP_TRIES:
                return AskLastLog()
            left = LeftBehind()  # reading it may be what keeps failing, and the instance must end
        told = left.result
        return _destroy(attempt, told_or_for_disk(told, attempt, run) if told else _unreported(ours), now)
    row = replace(attempt, run_deadline=_run_deadline(attempt, run))
    stop_now = run.cancel_at is not None or end_for_disk(attempt, run) is not None
    stop_at = now if stop_now else row.run_deadline
    if row.stop_asked_at is None and stop_at is not None and now >= stop_at:
        row = replace(row, stop_asked_at=now)
    contact = _last_contact(attempt, facts)
    timers = [now + WATCH, attempt.hard_deadline + DEADLINE_GRACE, contact + QUIET, contact + SILENT, row.run_deadline]
    if row.stop_asked_at is not None:
        timers.append(row.stop_asked_at + stop_grace(row))
    return _stay(row, min(at for at in timers if at is not None and at > now))


def _end_of_live(attempt: Attempt, run: Run, facts: AttemptFacts, now: datetime) -> Result | None:  # noqa: PLR0911 - guards
    """What ends a live attempt that has no result of its own."""
    if run.state is RunState.ENDED:
        return _lost("run_ended")
    if attempt.stop_asked_at is not None and now >= attempt.stop_asked_at + stop_grace(attempt):
        return _unheeded(attempt, run)
    if now >= attempt.hard_deadline and (_instance_ended(attempt) or now >= attempt.hard_deadline + DEADLINE_GRACE):
        late = Result(kind=ResultKind.TIMEOUT, reason="deadline", detail="The attempt reached its hard deadline.")
        return late if run.cancel_at is None else _cancelled(run)
    if _instance_ended(attempt):
        # who asked for an end gets one: nobody needs to know whether it came by the agent
        return _cancelled(run) if run.cancel_at is not None else _lost("host", _how_it_ended(attempt))
    if now >= _last_contact(attempt, facts) + SILENT and attempt.observed is not InstanceState.RUNNING:
        return _lost("silent", "The agent was silent for 5 minutes and the provider does not say that it runs.")
    if attempt.tries >= GIVE_UP_TRIES:
        return _lost("engine", attempt.last_error)
    return None


def _unheeded(attempt: Attempt, run: Run) -> Result:
    """The agent was told to stop, and its grace is over."""
    if run.cancel_at is not None:
        return _cancelled(run)
    timeout = Result(kind=ResultKind.TIMEOUT, reason="max_duration", detail="The job ran longer than max_duration.")
    return end_for_disk(attempt, run) or timeout


def _how_it_ended(attempt: Attempt) -> str:
    if attempt.observed_gone_at is not None:
        return "The instance was removed while the job ran, and not by gpurun."
    if attempt.exit_code is None:
        return "The instance ended while the job ran."
    return f"The instance ended while the job ran: {exit_sentence(attempt.exit_code)}"


def _unreported(result: Result) -> Result:
    """With what nobody can know when the agent did not come to its end."""
    if result.kind not in (ResultKind.LOST, ResultKind.TIMEOUT):
        return result
    return replace(result, detail=f"{result.detail} The log may be incomplete.".strip())


def _destroying(attempt: Attempt, facts: AttemptFacts, now: datetime) -> AttemptDecision:
    if isinstance(facts.destroyed, Destroyed):
        row = _enter(attempt, AttemptState.GONE, now)
        return SaveAttempt(row=replace(row, due_at=None, gone_at=now))
    asked_at = attempt.destroy_asked_at or attempt.state_since
    doubtful = now >= asked_at + DESTROY_DOUBT
    unconfirmed_at = attempt.unconfirmed_at or (now if doubtful else None)
    if isinstance(facts.destroyed, StillThere):
        again = UNCONFIRMED_POLL if doubtful else backoff(attempt.tries)
        row = replace(attempt, tries=attempt.tries + 1, last_error=facts.destroyed.message)
        return SaveAttempt(row=replace(row, due_at=now + again, unconfirmed_at=unconfirmed_at))
    if unconfirmed_at != attempt.unconfirmed_at:  # also where destroy fails in ways that nobody foresaw
        return SaveAttempt(row=replace(attempt, due_at=now, unconfirmed_at=unconfirmed_at))
    return Destroy()


def _called_off(attempt: Attempt, run: Run) -> Result | None:
    """What ends an attempt before it is live, from outside or because its steps keep failing."""
    if run.cancel_at is not None:
        return _cancelled(run)
    if run.state is RunState.ENDED:
        return _lost("run_ended")
    if attempt.tries >= GIVE_UP_TRIES:
        return _lost("engine", attempt.last_error)
    return None


def _cancelled(run: Run) -> Result:
    by = f"Cancelled by {run.cancel_by}." if run.cancel_by else ""
    return Result(kind=ResultKind.CANCELLED, reason="asked", detail=by)


def _lost(reason: str, detail: str = "") -> Result:
    return Result(kind=ResultKind.LOST, reason="no_capacity" if reason == "capacity" else reason, detail=detail)


def _instance_ended(attempt: Attempt) -> str:
    """`exited`, `gone`, or empty."""
    if attempt.observed_gone_at is not None:
        return "gone"
    return "exited" if attempt.observed in (InstanceState.EXITED, InstanceState.ERROR) else ""


def _run_deadline(attempt: Attempt, run: Run) -> datetime | None:
    began = [at for phase in (Phase.SETUP, Phase.RUNNING) if (at := attempt.phase_times.get(phase)) is not None]
    if not began or run.plan is None:
        return None
    return min(began) + timedelta(seconds=run.plan.max_duration_s)


def _last_contact(attempt: Attempt, facts: AttemptFacts) -> datetime:
    seen = attempt.last_seen_at or attempt.claimed_at or attempt.state_since
    return max(seen, facts.receiver_up_at)


def _unless_set(attempt: Attempt, result: Result) -> Result | None:
    return result if attempt.result is None else None


def _void(attempt: Attempt, result: Result, now: datetime) -> SaveAttempt:
    row = replace(_enter(attempt, AttemptState.VOID, now), due_at=None)
    return SaveAttempt(row=row, result=_unless_set(attempt, result))


def _destroy(attempt: Attempt, result: Result, now: datetime) -> SaveAttempt:
    row = replace(_enter(attempt, AttemptState.DESTROYING, now), destroy_asked_at=attempt.destroy_asked_at or now)
    return SaveAttempt(row=row, result=_unless_set(attempt, result))


def _enter(attempt: Attempt, state: AttemptState, now: datetime) -> Attempt:
    row = replace(attempt, state=state, state_since=now, due_at=now, tries=0, last_error="", preparing="")
    return replace(row, due_at=now + LOOKS[0]) if state is AttemptState.LOOKING else row


def _stay(attempt: Attempt, due_at: datetime, *, result: Result | None = None) -> SaveAttempt:
    return SaveAttempt(row=replace(attempt, due_at=due_at, tries=0, last_error=""), result=result)
