"""Maskers by attempt: built once, and again when a secret was registered."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from anyio import to_thread
from pydantic import SecretStr

from gpurun.domain.run import Attempt
from gpurun.ports.secrets import Secrets
from gpurun.run.tokens import attempt_tokens
from gpurun.telemetry.redact import EverythingMasker, Masker

MAX_MASKERS = 4096
IDLE_S = 600.0
"""One that was not used for so long goes: an attempt that lives is heard of each second, and a masker has 160 KiB."""


AT_ONCE_CHARS = 2048
"""Of all values together: about 20 ms. One for 31 KiB in lines takes 0.8 s, which everybody would notice."""


@dataclass(frozen=True, slots=True)
class _For:
    """What a masker was built for."""

    boot_id: str
    given: tuple[SecretStr, ...]
    """Not their number: an attempt that was forgotten may be learned again with others."""
    is_unknown: bool


@dataclass(slots=True)
class _Kept:
    built_for: _For
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
        return self._used(attempt, self._wanted(attempt))

    def at_once(self, attempt: Attempt) -> Masker | None:
        """`of`; None when it takes so long to build that it is for `beside`."""
        kept, wanted = self._known.get(attempt.id), self._wanted(attempt)
        if kept is not None and kept.built_for == wanted:
            return self._used(attempt, wanted)
        n_chars = sum(len(value.get_secret_value()) for value in wanted.given)
        return self._used(attempt, wanted) if n_chars <= AT_ONCE_CHARS else None

    def _used(self, attempt: Attempt, wanted: _For) -> Masker:
        kept, now = self._known.get(attempt.id), self._monotonic()
        if kept is None or kept.built_for != wanted:
            kept = self._known[attempt.id] = _Kept(wanted, self._built(attempt, wanted), now)
        kept.used_at = now
        self._known.move_to_end(attempt.id)
        self._let_go(now)
        return kept.masker

    async def beside(self, attempt: Attempt) -> Masker:
        """`of`, and the event loop goes on while a large one is built."""
        while (masker := self.at_once(attempt)) is None:
            wanted = self._wanted(attempt)
            built = await to_thread.run_sync(self._built, attempt, wanted)
            self._known[attempt.id] = _Kept(wanted, built, self._monotonic())
        return masker

    def _let_go(self, now: float) -> None:
        while True:
            oldest = next(iter(self._known))
            if len(self._known) <= MAX_MASKERS and now - self._known[oldest].used_at < IDLE_S:
                return
            del self._known[oldest]

    def _wanted(self, attempt: Attempt) -> _For:
        given, is_unknown = self._secrets.of_attempt(attempt.id), self._secrets.is_unknown(attempt.id)
        return _For(attempt.boot_id, given, is_unknown)

    def _built(self, attempt: Attempt, wanted: _For) -> Masker:
        """Of its tokens and the secrets that are registered for it by now."""
        kind = EverythingMasker if wanted.is_unknown else Masker
        return kind((*attempt_tokens(self._install_secret, attempt), *wanted.given))

    def register(self, value: SecretStr, attempt_id: str) -> None:
        """From now on a secret of that attempt. Raises SecretRefused."""
        self._secrets.register(value, attempt_id=attempt_id)

    def cannot_know(self, attempt_id: str) -> bool:
        """It masks everything by now."""
        return self._secrets.is_unknown(attempt_id)

    def version(self, attempt_id: str) -> int:
        """Grows with each secret of that attempt."""
        return self._secrets.version(attempt_id)
