"""Where secrets are handed out: with the claim of an attempt, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpurun.domain.errors import Revoked, SecretUnavailable, Transient
from gpurun.domain.run import AuditEntry, Result, ResultKind
from gpurun.domain.secret import GivenSecret
from gpurun.http.callers import Caller
from gpurun.http.services import HttpServices
from gpurun.ports.store import Tx
from gpurun.run.trust import NO_SECRETS, may_hold_secrets

REASON = "secret"


async def given_secrets(services: HttpServices, caller: Caller, boot_id: str) -> tuple[GivenSecret, ...]:
    """What this attempt gets; from now on it is masked in this process.

    Raises: Revoked when it cannot have all of them: its run then has its end, and the agent ends itself. Transient for
    the boot that has claimed it before: it asks again, as the key may be brought back.
    """
    if not caller.plan.secrets:
        return ()
    try:
        if not may_hold_secrets(caller.run):
            raise SecretUnavailable(NO_SECRETS)
        return await services.vault.values(caller.run.repo, caller.plan.secrets, caller.attempt.id)
    except SecretUnavailable as unavailable:
        detail = f"{unavailable} {unavailable.hint}".strip()
        if await services.store.write(lambda tx: _refuse(tx, caller, boot_id, detail)):
            raise Revoked(detail) from unavailable
        raise Transient("The secrets of the job cannot be read at this moment.") from unavailable


def hand_out(tx: Tx, caller: Caller, secrets: Sequence[GivenSecret]) -> None:
    """A fact of the claim's transaction: whoever hears from this attempt can find out what to mask.

    Raises: Transient when one was removed for good since it was read: the agent asks again.
    """
    versions = [secret.version for secret in secrets if secret.version]
    if versions and not tx.hand_out(caller.attempt.id, versions, repo_id=caller.run.repo.id):
        raise Transient("The secrets of the job were changed at this moment.")


def names_of(secrets: Sequence[GivenSecret]) -> Mapping[str, str]:
    """For the audit log."""
    return {"secrets": " ".join(secret.name for secret in secrets)} if secrets else {}


def _refuse(tx: Tx, caller: Caller, boot_id: str, detail: str) -> bool:
    """False for the boot whose run goes on."""
    result = Result(kind=ResultKind.REFUSED, reason=REASON, detail=detail)
    attempt = tx.attempt(caller.attempt.id)
    if attempt is None:
        return True
    if attempt.claimed_at is not None:  # a ghost must not end the run of who was first
        return attempt.boot_id != boot_id or attempt.result is not None
    if tx.set_result(attempt.id, result):
        data = {"result": result.kind.value, "reason": REASON}
        subject = f"attempt:{attempt.id}"
        tx.audit(AuditEntry(at=tx.now(), actor="engine", kind="attempt_result_set", subject=subject, data=data))
    return True
