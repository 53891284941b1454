"""`POST /agent/v1/layer`: what became of the volume of `setup`."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from gpurun.domain.run import AuditEntry, Phase
from gpurun.http.agent_session import BODY_TIMEOUT_S, RECORDS
from gpurun.http.asgi import Refusal, answer, read_body
from gpurun.http.callers import running_caller
from gpurun.http.services import HttpServices
from gpurun.http.spec import orders
from gpurun.ports.store import Tx
from gpurun.telemetry.told import text_of
from gpurun_agent import protocol

MAX_BODY = 16 * 1024


async def hear_of_layer(services: HttpServices, scope: Scope, receive: Receive, send: Send) -> None:
    """A layer counts before `run` begins, and once: what `run` says of its own volume changes nothing."""
    await running_caller(services.store, scope)  # nobody else is listened to
    body = await read_body(scope, receive, limit=MAX_BODY, timeout_s=BODY_TIMEOUT_S)
    try:
        told = {name: text_of(value) for name, value in protocol.decode(body)}
    except protocol.BadRecords as error:
        raise Refusal(400, f"The body is not records: {error}.") from None
    caller = await running_caller(services.store, scope)  # the body may have taken until now
    if caller.attempt.phase is not Phase.SETUP:
        raise Refusal(409, "setup is over")
    data: dict[str, str | int | None] = {}
    match told.get("state"):
        case "made":
            size, setup_ms = _number(told, "size"), _number(told, "setup_ms")
            sha256 = told.get("sha256", "")
            why = await services.layers.made(caller.attempt.id, sha256=sha256, size=size, setup_ms=setup_ms)
            if why:
                raise Refusal(409, why)
            data = {"sha256": sha256, "size": size}
        case "spoilt":
            await services.layers.spoilt(caller.attempt.id)
        case "misfit":  # what does not fit this commit may fit another one
            pass
        case _:
            raise Refusal(400, "This is no state of a layer.")
    kind, subject = f"setup_layer_{told['state']}", f"attempt:{caller.attempt.id}"

    def note(tx: Tx) -> None:
        if not any(entry.kind == kind for entry in tx.audit_of(subject)):  # it may not have heard the answer
            tx.audit(AuditEntry(at=tx.now(), actor="agent", kind=kind, subject=subject, data=data))

    await services.store.write(note)
    fields = orders(caller.attempt, cancel=caller.cancel)
    await answer(send, 200, protocol.encode(fields), content_type=RECORDS)


def _number(told: dict[str, str], name: str) -> int:
    text = told.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise Refusal(400, f"`{name}` must be a number.")
    return int(text)
