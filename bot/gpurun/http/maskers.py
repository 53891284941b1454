"""Maskers by attempt: built once, and again when a secret was registered."""

from __future__ import annotations

from collections import OrderedDict

from pydantic import SecretStr

from gpurun.domain.run import Attempt
from gpurun.ports.secrets import Secrets
from gpurun.run.tokens import attempt_tokens
from gpurun.telemetry.redact import Masker

MAX_MASKERS = 4096


class Maskers:
    """A cache. `of` is asked for each text anew, so that a secret counts from the next one on."""

    def __init__(self, secrets: Secrets, install_secret: bytes) -> None:
        self._secrets = secrets
        self._install_secret = install_secret
        self._known: OrderedDict[str, tuple[str, int, Masker]] = OrderedDict()

    def of(self, attempt: Attempt) -> Masker:
        """Masks its tokens and every secret that is registered for it by now."""
        boot_id, version, masker = self._known.get(attempt.id, ("", -1, None))
        now = self._secrets.version(attempt.id)
        if masker is None or (boot_id, version) != (attempt.boot_id, now):
            masker = Masker(self.values(attempt))
            self._known[attempt.id] = (attempt.boot_id, now, masker)
            if len(self._known) > MAX_MASKERS:
                self._known.popitem(last=False)
        self._known.move_to_end(attempt.id)
        return masker

    def values(self, attempt: Attempt) -> tuple[SecretStr, ...]:
        """Its tokens, and the secrets that are registered for it by now."""
        return (*attempt_tokens(self._install_secret, attempt), *self._secrets.of_attempt(attempt.id))

    def version(self, attempt_id: str) -> int:
        """Grows with each secret of that attempt."""
        return self._secrets.version(attempt_id)
