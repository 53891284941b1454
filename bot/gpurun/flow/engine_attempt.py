"""Steps of attempt rows: from the chosen offer to the instance's confirmed end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import assert_never

import structlog
from anyio import to_thread
from pydantic import SecretStr

from gpurun.domain.errors import (
    Bug,
    CreateUnknown,
    GpurunError,
    NotYetDestroyed,
    ProviderRefused,
    Refused,
    SecretUnavailable,
    Transient,
)
from gpurun.domain.manifest import manifest_digest
from gpurun.domain.offer import Isolation, Launch, Preparation, Uplink
from gpurun.domain.plan import Plan
from gpurun.domain.run import Attempt, AttemptState, AuditEntry, Run, RunState, Stray, StrayState
from gpurun.domain.stream import StreamName
from gpurun.flow import edges, failpoints
from gpurun.flow.build import ImageBuilds
from gpurun.flow.engine_layer import let_layer_go, with_layer
from gpurun.flow.engine_weights import Prepared, lay_out_weights, let_weights_go, side_by_side
from gpurun.flow.login import login_of
from gpurun.flow.planning import job_of
from gpurun.flow.services import CALL_TIMEOUT_S, MOVES, EngineServices, engine_audit
from gpurun.flow.worker import go_on, if_mine, still_mine
from gpurun.ports.provider import Prepares
from gpurun.ports.store import Kind, Lease, Tx
from gpurun.provider_kit.boot import boot_marker
from gpurun.run.decide_attempt import (
    Accepted,
    AskLastLog,
    AskLastWords,
    AttemptDecision,
    AttemptFacts,
    AttemptIsOver,
    Destroy,
    Destroyed,
    LastWords,
    LeftBehind,
    Look,
    Prepare,
    Rejected,
    SaveAttempt,
    SendCreate,
    StillThere,
    Unclear,
    decide_attempt,
)
from gpurun.run.tokens import claim_token
from gpurun.run.trust import while_approved
from gpurun.telemetry.last_log import LastLog, log_to_append, metrics_to_append, read_last_log
from gpurun.telemetry.told import result_of

log = structlog.get_logger()

CREATE_TIMEOUT_S = 45.0
LAST_WORDS_TIMEOUT_S = 15.0
LAST_WORDS_BYTES = 64 * 1024
LAST_LOG_BYTES = 40 * 1024 * 1024
"""More than an engine keeps of what an agent prints."""
LAST_LINE_CHARS = 200
PREPARE_WAIT_S = 1.0
SOCKET_IN_INSTANCE = "unix:/gpurun/s/bot.sock"
AGENT_IN_INSTANCE = "/gpurun/agent.pyz"

_CONCERN_THE_RUN = (AttemptState.UNSURE, AttemptState.DESTROYING, AttemptState.GONE, AttemptState.VOID)
"""States that let a run end or try again."""

_OVER = (AttemptState.GONE, AttemptState.VOID)

_Rows = tuple[Attempt, Run, AttemptFacts, datetime]
"""What a step decides on, at the time of the transaction that read it."""

_BOOT_ERRORS: Mapping[tuple[str, ...], str] = {
    ("error", "no-python3"): "no_python",
    ("error", "old-python"): "old_python",
    ("error", "missing-module"): "missing_module",
}
"""The boot script's words that say something about the image, as reasons."""


class AttemptSteps:
    """Handler of `attempt` rows."""

    def __init__(self, services: EngineServices) -> None:
        self._s = services
        self._builds = ImageBuilds(services)
        self._receiver_up_at: datetime | None = None
        """Agents count as reachable since our first look, by the clock of the rows."""
        self._seen: dict[Lease, _Rows] = {}
        """Between two steps of one worker: the rows as the transaction before left them."""

    async def __call__(self, lease: Lease) -> Lease | None:
        """What the rows alone decide is written at once; a call is a step of its own, on the rows that it read."""
        rows = self._seen.pop(lease, None)
        if rows is None:
            return await self._settle(lease)
        return await self._step(lease, *rows)

    async def _step(self, lease: Lease, attempt: Attempt, run: Run, facts: AttemptFacts, now: datetime) -> Lease | None:
        last_log: LastLog | None = None
        match decide_attempt(attempt, run, facts, now):
            case Prepare():
                facts = await self._start(attempt, run, facts, now, lease)
            case Look():
                facts = replace(facts, found=await self._look(attempt))
            case AskLastWords():
                facts = replace(facts, last_words=await self._last_words(attempt))
            case AskLastLog():
                last_log, left_behind = await self._last_log(attempt)
                facts = replace(facts, left_behind=left_behind)
            case Destroy():
                facts = replace(facts, destroyed=await self._destroy(attempt))
            case SaveAttempt() as decision if _is_void(decision):
                facts = await self._all_let_go(attempt, facts)
            case SaveAttempt() | AttemptIsOver():
                raise Bug("What needs no call was not written at once.")
            case SendCreate():
                raise Bug("Create was decided before anything was prepared.")
        return await self._settle(lease, facts, last_log)

    async def _settle(
        self, lease: Lease, asked: AttemptFacts | None = None, last_log: LastLog | None = None
    ) -> Lease | None:
        kept, rows = await edges.commit(
            self._s.store, failpoints.ATTEMPT_SETTLE, lambda tx: self._apply(tx, lease, asked, last_log)
        )
        if kept is not None and rows is not None:
            self._seen[kept] = rows
        return kept

    def _rows(self, tx: Tx, attempt_id: str) -> _Rows:
        attempt = tx.attempt(attempt_id)
        run = tx.run(attempt.run_id) if attempt else None
        if attempt is None or run is None:
            raise Bug(f"The attempt {attempt_id} or its run vanished.")
        account, now = tx.account(attempt.offer.provider), tx.now()
        if run.untrusted is not None and run.pr is not None:
            run = while_approved(run, tx.hold_approval(run.repo, run.pr), now)
        self._receiver_up_at = self._receiver_up_at or now
        return attempt, run, AttemptFacts(account=account, receiver_up_at=self._receiver_up_at), now

    # the transaction

    def _apply(
        self, tx: Tx, lease: Lease, asked: AttemptFacts | None, last_log: LastLog | None
    ) -> tuple[Lease | None, _Rows | None]:
        """The lease while the row is this worker's and due, and the rows when the next thing is a call."""
        if asked is not None and isinstance(asked.created, Accepted):  # a fact, whoever holds the row now
            self._set_ref(tx, lease.id, asked.created.ref)
        _note_times(tx, lease.id, asked)
        for _ in range(MOVES):
            attempt, run, facts, now = self._rows(tx, lease.id)
            known = facts if asked is None else replace(asked, account=facts.account)
            decision = decide_attempt(attempt, run, known, now)
            if asked is None and _needs_a_call(decision):
                return lease, (attempt, run, facts, now)
            match decision:
                case SaveAttempt() if _is_void(decision) and not known.let_go:
                    tx.release(lease, due_at=now)  # called off under the step
                case SaveAttempt():
                    self._save(tx, attempt, run, decision, lease, last_log)
                case AttemptIsOver():
                    tx.release(lease, due_at=None)
                case Prepare() | SendCreate() | Look() | AskLastWords() | AskLastLog() | Destroy():
                    tx.release(lease, due_at=now)  # the rows changed under the step
                case _:
                    assert_never(decision)
            kept = go_on(tx, lease)
            if kept is None:
                return None, None
            lease, asked, last_log = kept, None, None
        return lease, None

    def _save(
        self, tx: Tx, before: Attempt, run: Run, decision: SaveAttempt, lease: Lease, last_log: LastLog | None
    ) -> None:
        for ref in decision.strays:
            self._add_stray(tx, before, ref)
        if decision.ref is not None:
            self._set_ref(tx, before.id, decision.ref)
        row = decision.row
        if not _give_back(tx, before, row, lease):
            return
        if decision.result is not None and not tx.set_result(before.id, decision.result):
            decision = replace(decision, result=None)  # another came first, and whoever set it recorded it
        if decision.result is not None and last_log is not None:
            self._complete_streams(tx, before, last_log)
        if before.state is not row.state or decision.result is not None:
            tx.audit(_entry(tx, row, decision))
        _record_orders(tx, before, row)
        if row.state in _CONCERN_THE_RUN and before.state is not row.state:  # a result wakes it by itself
            tx.wake(Kind.RUN, run.id)
        if _shows(before, decision, run):
            tx.raise_rev(run.id, final=run.state is RunState.ENDED, urgent=False)

    def _complete_streams(self, tx: Tx, attempt: Attempt, last: LastLog) -> None:
        """With the result, so that it happens once: what is said about missing bytes moves the offsets."""
        for name, limit in self._s.stream_bytes.items():
            stored = tx.stream_end(attempt.id, name).next
            room = limit - stored
            if name is StreamName.METRICS:
                data = metrics_to_append(last, stored, limit=room)
            else:
                before = tx.read_stream(attempt.id, name, offset=max(0, stored - 1), max_bytes=1)
                data = log_to_append(last, stored, at_line_start=before in (b"", b"\n"), limit=room)
            if data:
                tx.append(attempt.id, name, stored, data)

    def _set_ref(self, tx: Tx, attempt_id: str, ref: str) -> None:
        attempt = tx.attempt(attempt_id)
        assert attempt is not None
        # a closed row never uses what is made for it so late
        usable = attempt.state not in _OVER or attempt.instance_ref == ref
        if not usable or not tx.set_instance_ref(attempt_id, ref):
            self._add_stray(tx, attempt, ref)

    def _add_stray(self, tx: Tx, attempt: Attempt, ref: str) -> None:
        """An instance that the attempt made and does not use: nobody ever will."""
        now = tx.now()
        tx.add_stray(
            Stray(
                id=self._s.chance.ulid(),
                provider=attempt.offer.provider,
                ref=ref,
                name=attempt.name,
                first_seen=now,
                state=StrayState.DESTROYING,
                due_at=now,
            )
        )
        tx.audit(engine_audit(now, "stray_found", f"attempt:{attempt.id}", ref=ref))

    # calls

    async def _start(
        self, attempt: Attempt, run: Run, facts: AttemptFacts, now: datetime, lease: Lease
    ) -> AttemptFacts:
        """Prepares, and when all is ready wins the CAS and calls create: the only place that does."""
        prepared = await self._all_prepared(attempt, run, now)
        facts = replace(facts, prepared=prepared.outcome, times=prepared.times)
        match decide_attempt(attempt, run, facts, now):
            case SendCreate():
                pass
            case SaveAttempt() as decision if _is_void(decision):
                return await self._all_let_go(attempt, facts)
            case _:
                return facts
        still_mine(for_s=CREATE_TIMEOUT_S)
        if not await edges.commit(
            self._s.store, failpoints.ATTEMPT_SEND_CREATE, lambda tx: self._send_create(tx, lease, facts)
        ):
            return facts
        created = await self._create(attempt, prepared.launch)
        if not isinstance(created, Accepted) and not _in_doubt(created):
            facts = await self._all_let_go(attempt, facts)
        return replace(facts, created=created)

    def _send_create(self, tx: Tx, lease: Lease, asked: AttemptFacts) -> bool:
        attempt, run, facts, now = self._rows(tx, lease.id)
        decision = decide_attempt(attempt, run, replace(asked, account=facts.account), now)
        if not isinstance(decision, SendCreate) or not tx.send_create(lease):
            return False
        tx.audit(engine_audit(now, "create_sent", f"attempt:{attempt.id}", name=attempt.name))
        return True

    async def _all_prepared(self, attempt: Attempt, run: Run, now: datetime) -> Prepared:
        """Image and weights, as far as they are. A job whose image is refused downloads nothing."""
        if run.plan is None:
            raise Bug(f"The run {run.id} has an attempt and no plan.")
        launch = await self._launch(attempt, run, run.plan)
        try:
            login = await login_of(
                run,
                job_of(run),
                lambda name: edges.call(
                    failpoints.ATTEMPT_LOGIN, lambda: self._s.vault.own_use(run.repo, name), timeout_s=CALL_TIMEOUT_S
                ),
            )
        except SecretUnavailable as lost:  # since planning
            return Prepared(launch, Rejected("auth", str(lost)))
        launch = replace(launch, login=login)
        built = await self._builds.image_of(attempt, run.plan, launch, wait_s=PREPARE_WAIT_S)
        if not isinstance(built, Preparation) or not built.ready:
            return Prepared(launch, built)
        image = await self._prepare(attempt, launch)
        if isinstance(image, Rejected):
            return Prepared(launch, image)
        wait_s = PREPARE_WAIT_S if image.ready else 0.0
        came = await lay_out_weights(self._s, attempt, run.plan, launch, now=now, wait_s=wait_s)
        if not isinstance(came.outcome, Preparation):
            return came
        both = side_by_side(image, came.outcome)
        launch = await with_layer(self._s, attempt, run, run.plan, came.launch) if both.ready else came.launch
        return Prepared(launch, both, came.times)

    async def _launch(self, attempt: Attempt, run: Run, plan: Plan) -> Launch:
        uplink = await edges.call(
            failpoints.ATTEMPT_UPLINK_OPEN,
            lambda: self._s.uplinks.open(attempt.id, attempt.offer.provider),
            timeout_s=CALL_TIMEOUT_S,
        )
        agent = self._s.agent
        return Launch(
            name=attempt.name,
            attempt_id=attempt.id,
            install=self._s.install_id,
            offer=attempt.offer,
            image=plan.container_image,
            needs=plan.resources,
            hard_deadline=attempt.hard_deadline,
            uplink=uplink,
            boot_script=agent.boot_script,
            agent_path=agent.path,
            agent_sha256=agent.sha256,
            claim_token=SecretStr(claim_token(self._s.install_secret, attempt.id)),
            env={
                "GPURUN_ATTEMPT": attempt.id,
                "GPURUN_DEADLINE": str(int(attempt.hard_deadline.timestamp())),
                "GPURUN_SHA256": agent.sha256,
                "GPURUN_AGENT": AGENT_IN_INSTANCE,
                "GPURUN_UPLINK": _address(uplink),
            },
            isolation=Isolation.STANDARD if run.untrusted is None else Isolation.UNTRUSTED,
        )

    async def _prepare(self, attempt: Attempt, launch: Launch) -> Preparation | Rejected:
        provider = self._s.provider(attempt.offer.provider)
        if not isinstance(provider, Prepares):
            return Preparation(ready=True)
        try:
            return await edges.call(
                failpoints.ATTEMPT_PREPARE,
                lambda: provider.prepare(launch, wait_s=PREPARE_WAIT_S),
                timeout_s=CALL_TIMEOUT_S,
            )
        except ProviderRefused as refused:
            return Rejected(refused.kind, str(refused))

    async def _create(self, attempt: Attempt, launch: Launch) -> Accepted | Rejected | Unclear:
        provider = self._s.provider(attempt.offer.provider)
        try:
            ref = await edges.call(
                failpoints.ATTEMPT_CREATE,
                if_mine(lambda: provider.create(launch), for_s=CREATE_TIMEOUT_S),
                timeout_s=CREATE_TIMEOUT_S,
            )
        except ProviderRefused as refused:
            return Rejected(refused.kind, str(refused))
        except CreateUnknown as unknown:
            return Unclear(str(unknown), unknown.ref)
        except Transient as error:
            return Unclear(str(error))
        return Accepted(ref)

    async def _look(self, attempt: Attempt) -> tuple[str, ...]:
        """Raises: Transient or Refused; a failed list is no look."""
        provider = self._s.provider(attempt.offer.provider)
        owned = await edges.call(
            failpoints.ATTEMPT_LOOK, lambda: provider.list_owned(attempt.name), timeout_s=CALL_TIMEOUT_S
        )
        return tuple(instance.ref for instance in owned if instance.name == attempt.name)

    async def _last_words(self, attempt: Attempt) -> LastWords:
        provider, ref = self._s.provider(attempt.offer.provider), attempt.instance_ref
        if ref is None:
            return LastWords("", "")
        try:
            log = await edges.call(
                failpoints.ATTEMPT_LAST_WORDS,
                lambda: provider.logs(ref, max_bytes=LAST_WORDS_BYTES),
                timeout_s=LAST_WORDS_TIMEOUT_S,
            )
        except GpurunError:
            return LastWords("", "")  # nice to have; never in the way of the end
        masker = await self._s.masker(attempt)
        return _last_words(masker.mask(_whole_lines(log)), attempt.id)

    async def _last_log(self, attempt: Attempt) -> tuple[LastLog, LeftBehind]:
        """Nothing where the provider has nothing or does not answer: the end must not wait for it."""
        provider, ref = self._s.provider(attempt.offer.provider), attempt.instance_ref
        if ref is None:
            return LastLog(), LeftBehind()
        try:
            printed = await edges.call(
                failpoints.ATTEMPT_LAST_LOG,
                lambda: provider.logs(ref, max_bytes=LAST_LOG_BYTES),
                timeout_s=LAST_WORDS_TIMEOUT_S,
            )
        except GpurunError as error:
            log.warning("last_log_not_read", attempt=attempt.id, error=str(error))
            return LastLog(), LeftBehind()
        mask = (await self._s.masker(attempt)).mask
        last = await to_thread.run_sync(lambda: read_last_log(printed, attempt.id, mask))
        return last, LeftBehind(None if last.end is None else result_of(last.end, mask))

    async def _destroy(self, attempt: Attempt) -> Destroyed | StillThere:
        provider, ref = self._s.provider(attempt.offer.provider), attempt.instance_ref
        if ref is None:
            raise Bug(f"The attempt {attempt.id} is to be destroyed and has no instance.")
        try:
            await edges.call(
                failpoints.ATTEMPT_DESTROY,
                if_mine(lambda: provider.destroy(ref), for_s=CALL_TIMEOUT_S),
                timeout_s=CALL_TIMEOUT_S,
            )
        except (NotYetDestroyed, Transient, Refused) as error:
            return StillThere(str(error))
        await self._let_all_go(attempt)
        return Destroyed()

    async def _all_let_go(self, attempt: Attempt, facts: AttemptFacts) -> AttemptFacts:
        """Only then it may end as what never was."""
        await self._let_all_go(attempt)
        return replace(facts, let_go=True)

    async def _let_all_go(self, attempt: Attempt) -> None:
        """What was open for it on this machine."""
        await edges.call(
            failpoints.ATTEMPT_UPLINK_CLOSE, lambda: self._s.uplinks.close(attempt.id), timeout_s=CALL_TIMEOUT_S
        )
        await let_weights_go(self._s, attempt)
        self._builds.forget(attempt)
        await let_layer_go(self._s, attempt)


def _note_times(tx: Tx, attempt_id: str, asked: AttemptFacts | None) -> None:
    """Facts, whoever holds the row."""
    for what, at in asked.times.items() if asked is not None else ():
        tx.note_time(attempt_id, what, at)


def _give_back(tx: Tx, before: Attempt, row: Attempt, lease: Lease) -> bool:
    """Most looks at a live attempt change nothing but the time of the next one. False: the lease was lost."""
    if replace(row, due_at=before.due_at) == before:
        return tx.release(lease, due_at=row.due_at)
    return tx.save_attempt(row, lease)


def _address(uplink: Uplink) -> str:
    """What the agent is told: the mounted socket, or the base URL."""
    return SOCKET_IN_INSTANCE if uplink.kind == "unix" else uplink.address


def _needs_a_call(decision: AttemptDecision) -> bool:
    """Also before the end of what never was: its uplink is open."""
    return _is_void(decision) if isinstance(decision, SaveAttempt) else not isinstance(decision, AttemptIsOver)


def _is_void(decision: SaveAttempt) -> bool:
    return decision.row.state is AttemptState.VOID


def _in_doubt(created: Rejected | Unclear) -> bool:
    """An instance of this attempt may speak yet."""
    return isinstance(created, Unclear) and created.ref is None


def _whole_lines(log: bytes) -> bytes:
    """Without the line that the limit has cut: it may begin inside a secret."""
    return log if len(log) < LAST_WORDS_BYTES else log.partition(b"\n")[2]


def _last_words(log: bytes, attempt_id: str) -> LastWords:
    marker = boot_marker(log, attempt_id)
    if marker is not None:
        return LastWords(_BOOT_ERRORS.get(marker.words[:2], ""), marker.sentence)
    lines = log.decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return LastWords("", f"Its last output: {last[:LAST_LINE_CHARS]}" if last else "")


def _entry(tx: Tx, row: Attempt, decision: SaveAttempt) -> AuditEntry:
    result = decision.result
    return engine_audit(
        tx.now(),
        f"attempt_{row.state}",
        f"attempt:{row.id}",
        run=row.run_id,
        ref=decision.ref or row.instance_ref,
        result=result.kind if result else None,
        reason=result.reason if result else None,
        artifacts=manifest_digest(tx.artifacts(row.id)) if result else None,
    )


def _record_orders(tx: Tx, before: Attempt, row: Attempt) -> None:
    """What was decided without leaving the state."""
    subject = f"attempt:{row.id}"
    if row.stop_asked_at is not None and before.stop_asked_at is None:
        tx.audit(engine_audit(tx.now(), "attempt_stop_asked", subject, run=row.run_id))
    if row.unconfirmed_at is not None and before.unconfirmed_at is None:
        log.error("end_unconfirmed", attempt=row.id, ref=row.instance_ref, error=before.last_error)
        tx.audit(engine_audit(tx.now(), "attempt_end_unconfirmed", subject, run=row.run_id, ref=row.instance_ref))


def _shows(before: Attempt, decision: SaveAttempt, run: Run) -> bool:
    """A reader of the comment would see a difference."""
    row = decision.row
    if before.unconfirmed_at != row.unconfirmed_at:
        return True
    if run.state is RunState.ENDED:  # only the meter still moves
        return row.state is AttemptState.GONE and row.offer.usd_per_hour_micro > 0
    moved = before.state is not row.state or decision.result is not None or before.preparing != row.preparing
    return moved or row.state is AttemptState.LIVE
