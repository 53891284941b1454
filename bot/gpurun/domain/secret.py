"""Which values can be kept out of what people see."""

from __future__ import annotations

from pydantic import SecretStr

from gpurun.domain.errors import SecretRefused

MIN_SECRET_CHARS = 6
"""Shorter ones stand in every log by chance: masking them would eat it."""
MAX_SECRET_BYTES = 48 * 1024
"""As GitHub allows for its own (https://docs.github.com/actions/reference/security/secrets, 2026-01)."""


def require_maskable(value: SecretStr) -> None:
    """Raises SecretRefused; the message does not hold the value."""
    text = value.get_secret_value()
    if len(text.strip()) < MIN_SECRET_CHARS:
        raise SecretRefused(
            f"A secret of fewer than {MIN_SECRET_CHARS} characters cannot be masked.",
            hint="Use a longer value.",
        )
    if len(text.encode("utf-8", "surrogateescape")) > MAX_SECRET_BYTES:
        raise SecretRefused(
            f"A secret of more than {MAX_SECRET_BYTES // 1024} KiB cannot be masked.",
            hint="Encrypt the large value, and make its key the secret.",
        )
