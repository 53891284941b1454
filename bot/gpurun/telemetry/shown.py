"""What the bot itself says, in comments, checks and its log, without any secret that it knows by then."""

from __future__ import annotations

from gpurun.ports.secrets import Secrets
from gpurun.telemetry.redact import Masker


class Hide:
    """Masks one text after the other, each with the newest secrets."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._masker: Masker | None = None
        self._total = 0

    def __call__(self, text: str) -> str:
        """`text` with stars."""
        total = self._secrets.total()
        if self._masker is None or total != self._total:
            self._masker, self._total = Masker(self._secrets.everything()), total
        return self._masker.text(text)
