"""Secrets in the memory of one process."""

from __future__ import annotations

from pydantic import SecretStr

from gpurun.domain.secret import require_maskable


class MemorySecrets:
    """`ports.secrets.Secrets`. What another process knows, this one learns from the vault (`ports.vault`)."""

    def __init__(self) -> None:
        self._own: dict[str, SecretStr] = {}
        self._of: dict[str, dict[str, SecretStr]] = {}
        self._unknown: set[str] = set()
        self._total = 0

    def register(self, value: SecretStr, *, attempt_id: str = "") -> None:
        require_maskable(value)
        known = self._of.setdefault(attempt_id, {}) if attempt_id else self._own
        if value.get_secret_value() not in known:
            known[value.get_secret_value()] = value
            self._total += 1

    def cannot_know(self, attempt_id: str) -> None:
        self._unknown.add(attempt_id)

    def can_know(self, attempt_id: str) -> None:
        self._unknown.discard(attempt_id)

    def is_unknown(self, attempt_id: str) -> bool:
        return attempt_id in self._unknown

    def forget(self, attempt_id: str) -> None:
        self._unknown.discard(attempt_id)
        if self._of.pop(attempt_id, None):
            self._total += 1

    def attempts(self) -> frozenset[str]:
        return frozenset(self._of) | self._unknown

    def of_attempt(self, attempt_id: str) -> tuple[SecretStr, ...]:
        return tuple(self._of.get(attempt_id, {}).values())

    def everything(self) -> tuple[SecretStr, ...]:
        once = dict(self._own)
        for known in self._of.values():
            once.update(known)
        return tuple(once.values())

    def version(self, attempt_id: str) -> int:
        return len(self._of.get(attempt_id, ()))

    def total(self) -> int:
        return self._total
