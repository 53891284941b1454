"""What the bot itself says, in comments, checks and its log, without any secret that it knows by then."""

from __future__ import annotations

from pydantic import SecretStr

from gpurun.ports.secrets import Secrets
from gpurun.telemetry.forms import forms
from gpurun.telemetry.redact import WholeMasker


class Hide:
    """Masks one text after the other, each with the newest secrets."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._masker: WholeMasker | None = None
        self._forms: dict[SecretStr, frozenset[bytes]] = {}
        """Of the secrets of the last time: a large one has 10,000, which take 0.1 s in which nobody is answered."""
        self._total = 0

    def __call__(self, text: str) -> str:
        """`text` with stars."""
        total = self._secrets.total()
        if self._masker is None or total != self._total:
            self._masker, self._total = self._built(), total
        return self._masker.text(text)

    def _built(self) -> WholeMasker:
        known = self._forms
        self._forms = {secret: known.get(secret) or forms(secret) for secret in self._secrets.everything()}
        return WholeMasker(frozenset().union(*self._forms.values()))
