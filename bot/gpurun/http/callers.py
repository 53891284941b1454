"""Who calls the agent API: a token names an attempt and proves it."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass

from starlette.types import Scope

from gpurun.domain.errors import Bug, PinNotFound, Revoked, Transient, UnknownToken
from gpurun.domain.plan import Plan
from gpurun.domain.run import AGENT_IS_OVER, Attempt, Run
from gpurun.http.asgi import Refusal, header
from gpurun.ports.store import Store, Tx
from gpurun.run import tokens

SCOPE_ATTEMPT = "gpurun.attempt"
"""Set in the scope of a request that came through the socket of one attempt."""

_ATTEMPT_ID = re.compile(r"[0-9a-z]{26}")


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token that names an attempt; nothing is proved yet."""

    attempt_id: str
    sha256: str

    def claims(self, attempt: Attempt | None) -> Attempt:
        """The attempt, when this is its claim token. Raises Refusal 401."""
        return self._proved(attempt, attempt.claim_sha256 if attempt else "")

    def runs(self, attempt: Attempt | None) -> Attempt:
        """The attempt, when this is its run token. Raises Refusal 401."""
        return self._proved(attempt, attempt.token_sha256 if attempt else "")

    def _proved(self, attempt: Attempt | None, expected: str) -> Attempt:
        if attempt is None or not expected or not hmac.compare_digest(self.sha256, expected):
            raise unknown()
        return attempt


def bearer(scope: Scope) -> Bearer:
    """The request's token. Raises Refusal 401, also for a token of another attempt than the socket's."""
    values = header(scope, b"authorization")
    scheme, _, token = values[0].decode("latin-1").partition(" ") if len(values) == 1 else ("", "", "")
    attempt_id = tokens.token_attempt(token)
    if scheme.lower() != "bearer" or not _ATTEMPT_ID.fullmatch(attempt_id):
        raise unknown()
    if scope.get(SCOPE_ATTEMPT, attempt_id) != attempt_id:
        raise unknown()
    return Bearer(attempt_id, tokens.token_sha256(token))


def unknown() -> Refusal:
    """The one answer to every token that is not good."""
    return Refusal(401, "This token opens nothing here.")


def refusal_of(error: BaseException) -> Refusal | None:
    """The protocol's word for an expected error; None for ours."""
    match error:
        case Refusal():
            return error
        case UnknownToken():
            return unknown()
        case Revoked():
            return Refusal(410, str(error))
        case PinNotFound():
            return Refusal(422, str(error))
        case Transient():
            return Refusal(503, str(error), headers=[(b"retry-after", b"2")])
        case _:
            return None


def require_wanted(attempt: Attempt) -> None:
    """Raises Revoked when the attempt is over: its agent must end itself."""
    if attempt.result is not None or attempt.claim_revoked_at is not None or attempt.state in AGENT_IS_OVER:
        raise Revoked(f"Attempt {attempt.number} is over.")


@dataclass(frozen=True, slots=True)
class Caller:
    """An attempt that may talk, and its run."""

    run: Run
    plan: Plan
    attempt: Attempt

    @property
    def cancel(self) -> bool:
        """Somebody wants the run to end."""
        return self.run.cancel_at is not None


def caller_of(tx: Tx, attempt: Attempt) -> Caller:
    """With the run's row and its plan."""
    run = tx.run(attempt.run_id)
    if run is None or run.plan is None:
        raise Bug(f"Attempt {attempt.id} has no planned run.")
    return Caller(run, run.plan, attempt)


async def running_caller(store: Store, scope: Scope) -> Caller:
    """Who calls with a run token. Raises Refusal 401, Revoked."""
    who = bearer(scope)

    def read(tx: Tx) -> Caller:
        attempt = who.runs(tx.attempt(who.attempt_id))
        require_wanted(attempt)
        return caller_of(tx, attempt)

    return await store.read(read)
