"""What planning finds out of a run's file: the job as far as it may be had, what its pins stand for, or why not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from typing import assert_never

import anyio

from gpurun.domain.config import Config, Job, PolicyKeys
from gpurun.domain.errors import (
    CannotBuild,
    ConfigError,
    GpurunError,
    NoSuchInput,
    NotByPolicy,
    NothingIncluded,
    PinNotFound,
    Refused,
    SecretUnavailable,
    TooWide,
    Transient,
    UserError,
    WrongPlatform,
)
from gpurun.domain.folder import CONFIG_NAME, beside
from gpurun.domain.ids import CommitSha, ImageTag
from gpurun.domain.lock import Lock
from gpurun.domain.plan import ModelSpec, Plan
from gpurun.domain.run import Fault, Pins, Quote, Run, RunState, Verdict, source_commit
from gpurun.domain.source import Merge
from gpurun.flow import edges, failpoints
from gpurun.flow.base import read_base
from gpurun.flow.build import read_build
from gpurun.flow.commit import FETCH_TIMEOUT_S, fetch_commit, fetch_history, fetch_lfs, fetch_submodule, find_merge
from gpurun.flow.login import login_of
from gpurun.flow.services import CALL_TIMEOUT_S, EngineServices
from gpurun.flow.silence import kept_notes, recalled_notes
from gpurun.plan import digest as digests
from gpurun.plan.build import images_of, require_one_registry, syntax_note
from gpurun.plan.layer import why_not_kept
from gpurun.plan.lines import at_build, at_include, at_input
from gpurun.plan.load import load, permissions_of, policy_of
from gpurun.plan.lock import (
    LOCK_NAME,
    MAX_LOCK_BYTES,
    and_all,
    moved_note,
    part_for,
    pinned,
    read_lock,
    require_same_files,
    without_files,
)
from gpurun.plan.narrow import narrowed
from gpurun.plan.platforms import platforms_note, require_a_machine
from gpurun.plan.policy import (
    changed_note,
    no_place,
    not_open,
    permissions_note,
    providers_of,
    require_allowed,
    require_images_allowed,
    untrusted_providers_of,
)
from gpurun.plan.resolve import (
    ConfirmImage,
    FetchCommit,
    FetchHistory,
    FetchLfs,
    FetchSubmodule,
    FindInputs,
    FindMerge,
    Pin,
    ReadBuild,
    ReadLock,
    ResolveModel,
    build,
    missing_pins,
    told_with_day,
    with_commit,
    with_lfs,
    with_submodule,
)
from gpurun.ports.provider import Builds, Provider, SaysPlatform
from gpurun.run.decide_run import end, enter

NO_MERGE = "This is the checkout itself: `checkout: {ref: merge}` is for pull requests."

MAX_FAULTS = 50
"""Of one file that are told; GitHub takes as many annotations at a time."""

_REASONS: Mapping[type[UserError], str] = {
    PinNotFound: "pin",
    NotByPolicy: "policy",
    TooWide: "argument",
    SecretUnavailable: "secret",
    WrongPlatform: "platform",
    CannotBuild: "build",
}
"""What a run was refused for, in a word; `config` for the rest."""

SourcePin = FindMerge | FetchCommit | FetchSubmodule | FetchHistory | FetchLfs

Change = Callable[[Run, datetime], Run]
"""What pins do to the row."""

Pinned = Callable[[Pins], Pins]
"""Adds one pin."""


class Resolver:
    """Resolves what is missing, each by a call of its own."""

    def __init__(self, services: EngineServices) -> None:
        self._s = services

    async def __call__(self, run: Run, job: Job) -> tuple[Pins, tuple[Exception, ...]]:
        """Commit, image and the next model at the same time: the pins with those that went well, and what did not."""
        missing = _missing(run, job, run.pins)
        require_build_allowed(run, job)
        outcomes = await _side_by_side([partial(self._resolve_or_say_when, run, job, pin) for pin in missing])
        pins = run.pins
        for outcome in outcomes:
            if not isinstance(outcome, Exception):
                pins = outcome(pins)
        return pins, tuple(outcome for outcome in outcomes if isinstance(outcome, Exception))

    async def _resolve_or_say_when(self, run: Run, job: Job, pin: Pin | ReadBase) -> Pinned:
        try:
            return await self._resolve(run, job, pin)
        except NothingIncluded as error:
            assert isinstance(pin, ResolveModel)
            raise at_include(error, pin.spec, run.config_text, run.job) from error
        except NoSuchInput as error:
            raise at_input(error, run.config_text, run.job) from error
        except PinNotFound as error:
            assert not isinstance(pin, ReadBase)
            raise told_with_day(error, pin, run.pins.lock or Lock(), folder=run.folder) from error

    async def _resolve(self, run: Run, job: Job, pin: Pin | ReadBase) -> Pinned:  # noqa: PLR0911 - one a pin
        match pin:
            case FindMerge() | FetchCommit() | FetchSubmodule() | FetchHistory() | FetchLfs():
                return await self._fetch(run, job, pin)
            case ReadBuild():
                return await self._read_build(run, job)
            case FindInputs():
                inputs = await edges.call(
                    failpoints.RUN_INPUTS,
                    lambda: self._s.git.inputs(run.repo.name, source_commit(run), run.folder, job.setup_inputs),
                    timeout_s=CALL_TIMEOUT_S,
                )
                return lambda pins: replace(pins, setup_inputs=inputs)
            case ReadBase():
                base = await read_base(self._s, run)
                return lambda pins: replace(pins, base=base)
            case ReadLock():
                lock = part_for(job, await self._lock(run), images_of(job, run.pins.build))
                return lambda pins: replace(pins, lock=lock)
            case ConfirmImage():
                return await self._confirm(run, job, pin)
            case ResolveModel(spec):
                await self._require_open(run, spec)
                said = await edges.call(
                    failpoints.RUN_MODEL, lambda: self._s.hub.resolve_or_recall(spec), timeout_s=FETCH_TIMEOUT_S
                )
                model, notes = said.pin, recalled_notes(said)
                require_same_files(run.pins.lock or Lock(), model, folder=run.folder)
                return lambda pins: replace(pins, models=(*pins.models, model), notes=(*pins.notes, *notes))
            case _:
                assert_never(pin)

    async def _require_open(self, run: Run, spec: ModelSpec) -> None:
        """Code that somebody had to approve gets what everybody may have. Raises NotByPolicy."""
        if run.untrusted is None:
            return
        gated_too = policy(run).untrusted.gated_models is True
        try:
            await edges.call(
                failpoints.RUN_MODEL_OPEN,
                lambda: self._s.hub.require_open(spec, gated_too=gated_too),
                timeout_s=FETCH_TIMEOUT_S,
            )
        except PinNotFound as closed:
            raise not_open(spec, closed, gated_too=gated_too) from closed

    async def _fetch(self, run: Run, job: Job, pin: SourcePin) -> Pinned:
        match pin:
            case FindMerge():
                merge = await find_merge(self._s, run)
                return lambda pins: replace(pins, merge=merge)
            case FetchCommit():
                found = await fetch_commit(self._s, run, skip=job.skipped(), get=job.fetched())
                return lambda pins: with_commit(pins, found)
            case FetchSubmodule(link):
                source, inner = await fetch_submodule(self._s, run, link, skip=job.skipped(), get=job.fetched())
                return lambda pins: with_submodule(pins, link, source, inner)
            case FetchHistory():
                tags = await fetch_history(self._s, run)
                return lambda pins: replace(pins, tags=tags)
            case FetchLfs(of):
                await fetch_lfs(self._s, run, of)
                return lambda pins: with_lfs(pins, of.path if of else "")

    async def _confirm(self, run: Run, job: Job, pin: ConfirmImage) -> Pinned:
        """The image is there, and for machines on which the job may run. Raises: PinNotFound, SecretUnavailable,
        WrongPlatform.
        """
        login = await login_of(
            run,
            job,
            lambda name: edges.call(
                failpoints.RUN_LOGIN, lambda: self._s.vault.own_use(run.repo, name), timeout_s=CALL_TIMEOUT_S
            ),
        )
        login = login if login is not None and login.is_for(pin.image) else None
        seen = await edges.call(
            failpoints.RUN_IMAGE,
            lambda: self._s.images.confirm(pin.image, locked=pin.locked, login=login),
            timeout_s=CALL_TIMEOUT_S,
        )
        notes = await kept_notes(self._s, run, pin.image, seen)
        machines = await self._machines(run, job) if seen.platforms else {}
        not_on = require_a_machine(pin.image, seen.platforms, machines)
        if job.build is not None:
            wanted = pinned(job, run.pins.lock or Lock(), images_of(job, run.pins.build)).images
            return lambda pins: replace(
                pins,
                confirmed=(*pins.confirmed, pin.image),
                image_confirmed={*wanted} <= {*pins.confirmed, pin.image},
                not_on=tuple(dict.fromkeys((*pins.not_on, *not_on))),
                notes=(*pins.notes, *notes),
            )
        return lambda pins: replace(
            pins,
            image_confirmed=True,
            platforms=seen.platforms,
            tag_points_to=seen.tag_points_to,
            not_on=not_on,
            notes=(*pins.notes, *notes),
        )

    async def _read_build(self, run: Run, job: Job) -> Pinned:
        """Dockerfile and context. Raises: CannotBuild, ConfigError."""
        assert job.build is not None
        places = usable(self._s.providers, places_of(self._s, run, job))
        builders = {name: one for name, one in places.items() if isinstance(one, Builds)}
        if places and not builders:
            raise CannotBuild(
                f"The job has a `build`, and {and_all(list(places))} cannot build images.",
                hint="Push the image to a registry and write `image: name:tag` in its place.",
            )
        own = {name: platform for name, platform in (await self._machines(run, job)).items() if name in builders}
        platform = next((one for one in own.values() if one), "")
        pin = await read_build(self._s, run, job.build, platform=platform)
        not_on = (name for name in places if name not in builders or own.get(name) not in {"", None, platform})
        left_out = tuple(not_on)
        return lambda pins: replace(pins, build=pin, not_on=tuple(dict.fromkeys((*pins.not_on, *left_out))))

    async def _machines(self, run: Run, job: Job) -> Mapping[str, str]:
        """Platforms of the providers that the job may use, as far as they are known; empty where they are not."""
        machines: dict[str, str] = {}
        for name, provider in usable(self._s.providers, places_of(self._s, run, job)).items():
            machines[name] = ""
            if isinstance(provider, SaysPlatform):
                with suppress(Transient, Refused):  # it is asked for offers soon, and that is waited for
                    machines[name] = await edges.call(
                        failpoints.RUN_PLATFORM, provider.platform, timeout_s=CALL_TIMEOUT_S
                    )
        return machines

    async def _lock(self, run: Run) -> Lock:
        """What `.gpurun.lock` at the commit holds; nothing when there is none."""
        path = beside(run.folder, LOCK_NAME)
        raw = await edges.call(
            failpoints.RUN_LOCK,
            lambda: self._s.forge.read_file(run.repo, run.sha, path, max_bytes=MAX_LOCK_BYTES),
            timeout_s=CALL_TIMEOUT_S,
        )
        return Lock() if raw is None else await anyio.to_thread.run_sync(read_lock, raw)


@lru_cache(maxsize=64)
def _load(text: str | None) -> Config:
    return load(text)  # every planning step needs it again, and YAML is slow


@lru_cache(maxsize=64)
def _read_policy(text: str | None) -> PolicyKeys:
    return policy_of(text)  # as often as the file


def job_of(run: Run) -> Job:
    """As it was narrowed for this run. Raises: ConfigError, TooWide."""
    jobs = _load(run.config_text).jobs
    if run.job not in jobs:
        raise ConfigError(f"There is no job {run.job!r}.")
    return narrowed(jobs[run.job], run.narrow)


def allowed(services: EngineServices, run: Run) -> Job:
    """The job, as far as the policy of the default branch lets it. Raises: NotByPolicy, ConfigError."""
    job = job_of(run)
    require_allowed(job, run.job, policy(run))
    if run.untrusted is not None and not usable(services.providers, places_of(services, run, job)):
        raise no_place(policy(run), services.refuse_untrusted & services.providers.keys())
    return job


def places_of(services: EngineServices, run: Run, job: Job) -> tuple[str, ...] | None:
    """Providers where the run may go, the first choice first; None: to any. Raises: NotByPolicy."""
    if run.untrusted is None:
        return providers_of(job, policy(run))
    only = untrusted_providers_of(job, policy(run))
    names = tuple(services.providers) if only is None else only
    return tuple(name for name in names if name not in services.refuse_untrusted)


def require_build_allowed(run: Run, job: Job) -> None:
    """What its Dockerfile names, once that was read, is allowed, and one login is enough. Raises: NotByPolicy,
    ConfigError.
    """
    if job.build is None or run.pins.build is None:
        return
    images = images_of(job, run.pins.build)
    require_images_allowed(images, policy(run))
    try:
        require_one_registry(job, images)
    except ConfigError as error:
        raise at_build(error, run.config_text, run.job) from error


def policy(run: Run) -> PolicyKeys:
    """That of the default branch. Raises: NotByPolicy when it cannot be known."""
    try:
        return _read_policy(run.policy_text)
    except ConfigError as fault:
        raise NotByPolicy(
            f"The policy of the default branch cannot be read ({fault}), so nothing is started.",
            hint="Who may merge there can correct its `.gpurun.yml`.",
        ) from fault


def _notes(run: Run, job: Job, plan: Plan, pins: Pins) -> tuple[str, ...]:
    locked = pins.lock.image(job.image) if pins.lock is not None and isinstance(job.image, ImageTag) else None
    notes = [moved_note(locked, pins.tag_points_to, folder=run.folder), syntax_note(pins.build, job.build)]
    if plan.image is not None:
        notes.insert(0, platforms_note(plan.image, pins.platforms))
    notes.append(why_not_kept(plan))
    if run.pr is None:  # no default branch was asked: who runs a job on a machine of theirs sets its policy
        notes.insert(0, NO_MERGE if job.wants_merge else "")
    else:
        notes.insert(0, merge_note(run.sha, pins.merge) if pins.merge else "")
        own = _load(run.config_text)
        notes.append(changed_note(own.policy, policy(run), folder=run.folder))
        notes.append(permissions_note(own.permissions, permissions_of(run.policy_text), folder=run.folder))
    return tuple(note for note in notes if note)


def merge_note(head: CommitSha, merge: Merge) -> str:
    """Which commit the job got, since the check is on another one."""
    base = f" and {merge.base[:12]} of the base branch" if merge.base else ""
    return f"It runs {merge.commit[:12]}, the merge of {head[:12]}{base}."


def usable(known: Mapping[str, Provider], only: Collection[str] | None) -> Mapping[str, Provider]:
    """Those providers that are configured here, in the order in which they are named; None: all."""
    return known if only is None else {name: known[name] for name in only if name in known}


async def _side_by_side(calls: Sequence[Callable[[], Awaitable[Pinned]]]) -> list[Pinned | Exception]:
    """What each returned or raised, in order."""
    outcomes: dict[int, Pinned | Exception] = {}

    async def note(number: int, call: Callable[[], Awaitable[Pinned]]) -> None:
        try:
            outcomes[number] = await call()
        except Exception as error:  # noqa: BLE001 - the others are not in vain
            outcomes[number] = error

    try:
        async with anyio.create_task_group() as tasks:
            for number, call in enumerate(calls):
                tasks.start_soon(note, number, call)
    except BaseExceptionGroup as group:  # no error but an end, such as `Crash`
        raise group.exceptions[0] from None
    return [outcomes[number] for number in range(len(calls))]


@dataclass(frozen=True, slots=True)
class ReadBase:
    """What the base branch says of the job: whoever is asked to approve code must see what it changes."""


def _missing(run: Run, job: Job, pins: Pins) -> tuple[Pin | ReadBase, ...]:
    base = (ReadBase(),) if run.untrusted is not None and pins.base is None else ()
    return (*base, *missing_pins(job, pins, folder=run.folder))


def is_waiting_for_a_word(run: Run, job: Job, pins: Pins) -> bool:
    """Everything is pinned, and a person comes next."""
    return run.untrusted is not None and not _missing(run, job, pins)


def pinned_change(run: Run, job: Job, pins: Pins, quote: Quote | None) -> Change:
    """The plan, when nothing is missing. Raises PinNotFound."""
    if not _missing(run, job, pins):
        return _planned(run, job, pins, quote)
    return lambda row, now: replace(row, pins=pins, due_at=now, tries=0, last_error="")


def plan_of(run: Run, job: Job, pins: Pins) -> Plan:
    """Once nothing is missing. Raises PinNotFound."""
    sha = pins.merge.commit if pins.merge else run.sha
    return build(repo=run.repo.name, sha=sha, job_name=run.job, job=job, pins=pins, folder=run.folder)


def _planned(run: Run, job: Job, pins: Pins, quote: Quote | None) -> Change:
    plan = plan_of(run, job, pins)
    state = RunState.QUEUED if run.untrusted is None else RunState.WAITING_APPROVAL
    digest, key = digests.digest(plan), digests.result_key(plan)
    kept = replace(pins, lock=pins.lock and without_files(pins.lock))
    notes = (*_notes(run, job, plan, pins), *pins.notes)
    return lambda row, now: replace(
        enter(row, state, now),
        pins=kept,
        quote=quote,
        plan=plan,
        plan_digest=digest,
        result_key=key,
        notes=notes,
        max_attempts=job.max_attempts,
    )


def raise_refusal(errors: Sequence[Exception]) -> None:
    """What no later try would mend comes before what one may."""
    for error in errors:
        if isinstance(error, UserError | Refused):
            raise error


def wait_longest(errors: Sequence[Exception]) -> None:
    """The first is told and decides when to try again, and each asks for its own pause."""
    pauses = [error.retry_after_s for error in errors if isinstance(error, Transient) and error.retry_after_s]
    if pauses and isinstance(errors[0], Transient):
        errors[0].retry_after_s = max(pauses)


def refusal(error: GpurunError, pins: Pins) -> Change:
    """The end of the run, with the pins that it has."""
    why = _why_refused(error)
    return lambda row, now: why(replace(row, pins=pins), now)


def _why_refused(error: GpurunError) -> Change:
    match error:
        case ConfigError(line=line):
            ours = error.file == CONFIG_NAME  # whose lines are quoted
            told = _begun(_sentences(error)) if ours else f"`{error.file}`, line {line}: {_sentences(error)}"
            faults = (error, *error.others)
            return lambda row, now: end(
                row,
                Verdict.REFUSED,
                now,
                reason="config",
                detail=told,
                error_line=line if ours else 0,
                faults=tuple(_fault(one, row.folder) for one in faults[:MAX_FAULTS]),
            )
        case UserError():
            reason = next((word for kind, word in _REASONS.items() if isinstance(error, kind)), "config")
            told = _sentences(error)
            return lambda row, now: end(row, Verdict.REFUSED, now, reason=reason, detail=told)
        case _:
            told = str(error)
            return lambda row, now: end(row, Verdict.LOST, now, reason="resolve", detail=told)


def _sentences(error: UserError) -> str:
    """Message and hint, which stand in lines of their own on a terminal."""
    stop = "" if error.message.endswith((".", "?", "!")) else "."
    return f"{error.message}{stop} {error.hint}".strip().replace("\n", " ")


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]


def _fault(error: ConfigError, folder: str) -> Fault:
    ours = error.file in {CONFIG_NAME, LOCK_NAME}  # a Dockerfile is named from the top
    return Fault(file=beside(folder, error.file) if ours else error.file, line=error.line, text=_sentences(error))
