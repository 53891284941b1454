"""Maskers by attempt: built once, and again when a secret was registered."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import SecretStr

from gpurun.domain.run import Attempt
from gpurun.ports.secrets import Secrets
from gpurun.run.tokens import attempt_tokens
from gpurun.telemetry.redact import EverythingMasker, Masker

MAX_MASKERS = 4096
IDLE_S = 600.0
"""One that was not used for so long goes: an attempt that lives is heard of each second, and a masker has 160 KiB."""


@dataclass(slots=True)
class _Kept:
    boot_id: str
    given: tuple[SecretStr, ...]
    """Not their number: an attempt that was forgotten may be learned again with others."""
    masker: Masker
    used_at: float


class Maskers:
    """A cache. `of` is asked for each text anew, so that a secret counts from the next one on."""

    def __init__(
        self, secrets: Secrets, install_secret: bytes, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._secrets = secrets
        self._install_secret = install_secret
        self._monotonic = monotonic
        self._known: OrderedDict[str, _Kept] = OrderedDict()
        """Last used last."""

    def of(self, attempt: Attempt) -> Masker:
        """Masks its tokens and every secret that is registered for it by now; everything, when one cannot be known."""
        if self._secrets.is_unknown(attempt.id):
            return EverythingMasker(self._values(attempt))
        kept, given = self._known.get(attempt.id), self._secrets.of_attempt(attempt.id)
        now = self._monotonic()
        if kept is None or (kept.boot_id, kept.given) != (attempt.boot_id, given):
            kept = self._known[attempt.id] = _Kept(attempt.boot_id, given, Masker(self._values(attempt)), now)
        kept.used_at = now
        self._known.move_to_end(attempt.id)
        self._let_go(now)
        return kept.masker

    def _let_go(self, now: float) -> None:
        while True:
            oldest = next(iter(self._known))
            if len(self._known) <= MAX_MASKERS and now - self._known[oldest].used_at < IDLE_S:
                return
            del self._known[oldest]

    def _values(self, attempt: Attempt) -> tuple[SecretStr, ...]:
        """Its tokens, and the secrets that are registered for it by now."""
        return (*attempt_tokens(self._install_secret, attempt), *self._secrets.of_attempt(attempt.id))

    def version(self, attempt_id: str) -> int:
        """Grows with each secret of that attempt."""
        return self._secrets.version(attempt_id)
