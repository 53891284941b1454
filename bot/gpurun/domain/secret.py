"""Secrets of repositories: which values can be taken, and how one is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pydantic import SecretStr

from gpurun.domain.errors import SecretRefused

MIN_SECRET_CHARS = 6
"""Shorter ones stand in every log by chance: masking them would eat it."""
MAX_SECRET_BYTES = 48 * 1024
"""As GitHub allows for its own (https://docs.github.com/actions/reference/security/secrets, 2026-01)."""
LINGER = timedelta(hours=1)
"""How long a replaced version outlives the attempts that were given it: their last words are still shown anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A value that only a key of the key file opens, and only in its place."""

    key_id: str
    data: bytes = field(repr=False)
    """Nonce and ciphertext."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSecret:
    """One version of a secret. Versions never change but for the key that they are sealed with."""

    id: str
    repo: str
    """`owner/name` in lower case, as `secret_scope` gives it."""
    name: str
    sealed: Sealed
    set_at: datetime
    set_by: str
    replaced_at: datetime | None = None
    """When a newer version, or a removal, took its place. It stays while an attempt may hold it."""
    repo_id: int | None = None
    """Of the repository whose run got it first. Another one that takes the name later gets nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSecret:
    """What an attempt gets."""

    name: str
    value: SecretStr
    version: str = ""
    """Of the kept secret; empty for one that nobody keeps."""


def secret_scope(repo: str) -> str:
    """The repository as secrets know it: names on GitHub do not differ by case alone."""
    return repo.lower()


def require_settable(value: SecretStr) -> None:
    """Raises SecretRefused for what no environment variable can hold, or nobody can mask, and for what is no text."""
    require_maskable(value)
    try:
        value.get_secret_value().encode()
    except UnicodeEncodeError:
        raise SecretRefused(
            "A secret is text in UTF-8, and this value is not.",
            hint="Encode it, with base64 for example, and let the job decode it.",
        ) from None  # it holds the value
    if "\0" in value.get_secret_value():
        raise SecretRefused(
            "A secret becomes an environment variable, which cannot hold a NUL byte.",
            hint="Encode it, with base64 for example, and let the job decode it.",
        )


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
