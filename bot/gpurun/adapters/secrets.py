"""Secrets in the memory of one process."""

from __future__ import annotations

from pydantic import SecretStr

from gpurun.domain.secret import require_maskable


class MemorySecrets:
    """`ports.secrets.Secrets`. Another process does not know these values, and they are gone with this one."""

    def __init__(self) -> None:
        self._own: dict[str, SecretStr] = {}
        self._of: dict[str, dict[str, SecretStr]] = {}
        self._total = 0

    def register(self, value: SecretStr, *, attempt_id: str = "") -> None:
        require_maskable(value)
        known = self._of.setdefault(attempt_id, {}) if attempt_id else self._own
        if value.get_secret_value() not in known:
            known[value.get_secret_value()] = value
            self._total += 1

    def of_attempt(self, attempt_id: str) -> tuple[SecretStr, ...]:
        return tuple(self._of.get(attempt_id, {}).values())

    def everything(self) -> tuple[SecretStr, ...]:
        return (*self._own.values(), *(value for known in self._of.values() for value in known.values()))

    def version(self, attempt_id: str) -> int:
        return len(self._of.get(attempt_id, ()))

    def total(self) -> int:
        return self._total
