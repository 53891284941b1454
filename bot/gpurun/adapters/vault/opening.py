"""Kept secrets become values, or sentences that say which of them cannot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpurun.adapters.vault.cipher import DoesNotOpen, unseal
from gpurun.adapters.vault.keyfile import KeyFile
from gpurun.domain.errors import SecretRefused, SecretUnavailable, UserError
from gpurun.domain.secret import GivenSecret, KeptSecret
from gpurun.telemetry.forms import require_tellable


def fault(keys: KeyFile, secret: KeptSecret) -> str:
    """Why it cannot be read, in half a sentence; empty when it can."""
    return "" if isinstance(opened := _opened(keys, secret), GivenSecret) else opened


def opened(keys: KeyFile, kept: Iterable[KeptSecret]) -> tuple[GivenSecret, ...]:
    """All of them. Raises SecretUnavailable for those that cannot be read."""
    outcomes = [(secret, _opened(keys, secret)) for secret in kept]
    lost = [(secret, why) for secret, why in outcomes if isinstance(why, str)]
    if lost:
        raise unreadable([secret.name for secret, _ in lost], lost[0][0].repo, lost[0][1])
    return tuple(given for _, given in outcomes if isinstance(given, GivenSecret))


def require_together(secrets: Iterable[GivenSecret]) -> None:
    """Raises SecretUnavailable for more than one job can have. Blocks, for large values up to a second."""
    try:
        require_tellable(secret.value for secret in secrets)
    except SecretRefused as refused:
        raise SecretUnavailable(f"The job names too much under `secrets`. {refused}", hint=refused.hint) from None


def unreadable(names: Sequence[str], repo: str, why: str) -> SecretUnavailable:
    """Of secrets that are there and cannot be used."""
    return SecretUnavailable(
        f"The secret{_s(names)} {listed(names)} of {repo} cannot be read any more: {why}.", hint=set_again(names, repo)
    )


def missing(names: Sequence[str], repo: str, but: str = "") -> SecretUnavailable:
    """Of secrets that nobody has set."""
    verb = "are" if len(names) > 1 else "is"
    return SecretUnavailable(
        f"The secret{_s(names)} {listed(names)} {verb} not set for {repo}{but}.", hint=set_again(names, repo)
    )


def set_again(names: Sequence[str], repo: str) -> str:
    """What to type on the server."""
    return f"On the server: {', '.join(f'`gpurun secret set {name} --repo {repo}`' for name in names)}."


def listed(names: Sequence[str]) -> str:
    """`A, B and C`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _s(names: Sequence[str]) -> str:
    return "s" if len(names) > 1 else ""


def _opened(keys: KeyFile, secret: KeptSecret) -> GivenSecret | str:
    try:
        key = keys.key(secret.sealed.key_id)
    except UserError as error:
        return f"{error} {error.hint}".rstrip(". ")
    if key is None:
        return f"its key {secret.sealed.key_id} is not in {keys.path}"
    try:
        value = unseal(key, secret.repo, secret.name, secret.sealed)
    except DoesNotOpen:
        return "its row was changed, or belongs elsewhere"
    return GivenSecret(name=secret.name, value=value, version=secret.id)
