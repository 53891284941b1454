"""The agent's session: claim, phase, finish."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from pydantic import SecretStr
from starlette.types import Receive, Scope, Send

from gpurun.domain.errors import Revoked
from gpurun.domain.manifest import manifest_digest
from gpurun.domain.run import Attempt, AuditEntry, Phase, Result
from gpurun.http.asgi import Refusal, answer, read_body
from gpurun.http.callers import Caller, bearer, caller_of, require_wanted, running_caller
from gpurun.http.handout import given_secrets, hand_out, names_of
from gpurun.http.services import HttpServices
from gpurun.http.spec import build_spec, masks_fields, orders
from gpurun.ports.store import Tx
from gpurun.run import tokens
from gpurun.run.disk import end_for_disk, told_or_for_disk
from gpurun.telemetry.redact import Masker
from gpurun.telemetry.told import result_of, text_of
from gpurun_agent import protocol

RECORDS = b"application/octet-stream"
MAX_RECORDS = 256 * 1024
BODY_TIMEOUT_S = 60.0
MAX_LANDED = 64

_BOOT_ID = re.compile(r"[!-~]{1,128}")
_LANDED = re.compile(r"landed\.([a-z0-9_.]{1,40})")


async def claim(services: HttpServices, scope: Scope, receive: Receive, send: Send) -> None:
    """The spec for the first boot that asks, and for the same boot again; 410 for every other."""
    who = bearer(scope)
    asking = await services.store.read(lambda tx: caller_of(tx, who.claims(tx.attempt(who.attempt_id))))
    attempt = asking.attempt
    fields = await _records(scope, receive)
    boot_id = text_of(fields.get("boot_id", b""))
    if not _BOOT_ID.fullmatch(boot_id):
        raise Refusal(400, "A boot_id of 1 to 128 visible ASCII characters is needed.")
    token = tokens.run_token(services.install_secret, attempt.id, boot_id)
    secrets = await given_secrets(services, asking, boot_id)  # registered: what follows is masked with them
    masker = await services.maskers.beside(replace(attempt, boot_id=boot_id))
    landed, shown_id = _landed(fields, masker), masker.text(boot_id)

    def write(tx: Tx) -> Caller:
        before = who.claims(tx.attempt(who.attempt_id))
        require_wanted(before)
        sha256 = tokens.token_sha256(token)
        if not tx.set_claimed(before.id, boot_id=boot_id, token_sha256=sha256, landed=landed):
            raise Revoked("Another boot has claimed this attempt.")
        hand_out(tx, asking, secrets)
        tx.saw(before.id, phase=Phase.SOURCE)  # what every agent does next: a request less in the way of it
        if before.claimed_at is None:
            data = {"boot_id": shown_id, "agent": landed.get("agent"), **names_of(secrets)}
            tx.audit(_entry(tx, before, "attempt_claimed", data))
        after = tx.attempt(before.id)
        assert after is not None
        return caller_of(tx, after)

    try:
        caller = await services.store.write(write)
    except Revoked:  # a ghost, or a container that its engine started again: it must leave a trace
        refused = {"boot_id": shown_id}
        await services.store.write(lambda tx: _audit_once(tx, attempt, "attempt_claim_refused", refused))
        raise
    version = services.maskers.version(attempt.id)  # first: what comes in between is told again
    masker = await services.maskers.beside(caller.attempt)
    layer = await services.layers.of(attempt.id) if caller.plan.setup_inputs else None
    spec = build_spec(
        caller.plan,
        caller.attempt,
        token=SecretStr(token),
        cancel=caller.cancel,
        log_quota_bytes=services.log_quota_bytes,
        limits=services.artifacts,
        secrets=secrets,
        needles=masker.needles,
        masks_version=version,
        weights_mounted=caller.attempt.offer.provider in services.mounting,
        layer=layer,
    )
    await answer(send, 200, spec, content_type=RECORDS)


async def tell_masks(services: HttpServices, scope: Scope, receive: Receive, send: Send) -> None:
    """What the agent masks from now on, all of it."""
    del receive
    caller = await running_caller(services.store, scope)
    await services.vault.learn(caller.attempt.id)
    version = services.maskers.version(caller.attempt.id)
    masker = await services.maskers.beside(caller.attempt)
    fields = masks_fields(masker.needles, version)
    told = [*fields, *orders(caller.attempt, cancel=caller.cancel)]
    await answer(send, 200, protocol.encode(told), content_type=RECORDS)


async def report_phase(services: HttpServices, scope: Scope, receive: Receive, send: Send) -> None:
    """Stamps a phase; the answer carries the orders."""
    who = bearer(scope)
    word = text_of((await _records(scope, receive)).get("phase", b""))

    def write(tx: Tx) -> Caller:
        attempt = who.runs(tx.attempt(who.attempt_id))
        require_wanted(attempt)  # in the same transaction: nothing moves after the end
        if word not in protocol.PHASES:
            raise Refusal(400, "This is no phase.")
        tx.saw(attempt.id, phase=Phase(word))
        return caller_of(tx, attempt)

    caller = await services.store.write(write)
    orders_now = (
        *orders(caller.attempt, cancel=caller.cancel),
        ("out_of_disk", int(not caller.cancel and end_for_disk(caller.attempt, caller.run) is not None)),
    )
    await answer(send, 200, protocol.encode(orders_now), content_type=RECORDS)


async def finish(services: HttpServices, scope: Scope, receive: Receive, send: Send) -> None:
    """Sets the result once. Saying it again is fine; saying something else later is only audited."""
    who = bearer(scope)
    attempt = await services.store.read(lambda tx: who.runs(tx.attempt(who.attempt_id)))
    masker = await services.masker(attempt)
    told = result_of(await _records(scope, receive), masker.mask)

    def write(tx: Tx) -> Attempt:
        now = who.runs(tx.attempt(who.attempt_id))
        run = tx.run(now.run_id)
        result = told_or_for_disk(told, now, run) if run is not None else told
        if now.result is None:
            require_not_revoked(now)
            tx.saw(now.id, phase=Phase.FINISHED)
            if tx.set_result(now.id, result):
                digest = manifest_digest(tx.artifacts(now.id))
                kept: dict[str, str | int | None] = {"artifacts": digest} if digest else {}
                tx.audit(_entry(tx, now, "attempt_result_set", _told(result) | kept))
            else:  # the engine's own came in between
                _audit_late(tx, now, result)
        elif (now.result.kind, now.result.exit_code) != (result.kind, result.exit_code):
            _audit_late(tx, now, result)
        return now

    after = await services.store.write(write)
    await answer(send, 200, protocol.encode(orders(after)), content_type=RECORDS)


def require_not_revoked(attempt: Attempt) -> None:
    """A ghost has no result. Raises Revoked."""
    if attempt.claim_revoked_at is not None:
        raise Revoked(f"Attempt {attempt.number} is over.")


async def _records(scope: Scope, receive: Receive) -> dict[str, bytes]:
    body = await read_body(scope, receive, limit=MAX_RECORDS, timeout_s=BODY_TIMEOUT_S)
    try:
        return dict(protocol.decode(body))
    except protocol.BadRecords as error:
        raise Refusal(400, f"The body is not records: {error}.") from None


def _landed(fields: Mapping[str, bytes], masker: Masker) -> dict[str, str]:
    named = {"agent": fields["agent"]} if "agent" in fields else {}
    for name, value in fields.items():
        if match := _LANDED.fullmatch(name):
            named[match[1]] = value
    return {name: text_of(masker.mask(value)) for name, value in list(named.items())[:MAX_LANDED]}


def _told(result: Result) -> dict[str, str | int | None]:
    return {"result": result.kind.value, "exit_code": result.exit_code, "reason": result.reason}


def _audit_late(tx: Tx, attempt: Attempt, result: Result) -> None:
    _audit_once(tx, attempt, "attempt_result_late", _told(result))


def _audit_once(tx: Tx, attempt: Attempt, kind: str, data: Mapping[str, str | int | None]) -> None:
    """Once per attempt: a job can say what it likes as often as it likes."""
    if not any(entry.kind == kind for entry in tx.audit_of(f"attempt:{attempt.id}")):
        tx.audit(_entry(tx, attempt, kind, data))


def _entry(tx: Tx, attempt: Attempt, kind: str, data: Mapping[str, str | int | None]) -> AuditEntry:
    return AuditEntry(at=tx.now(), actor="agent", kind=kind, subject=f"attempt:{attempt.id}", data=data)
