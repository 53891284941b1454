"""Tokens of an attempt, derived from the installation's secret, so that no row holds one.

A token is `<attempt id>.<tag>`: the id in front finds the row, the tag proves that we made it. Rows hold hashes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from pydantic import SecretStr

from gpurun.domain.run import Attempt


def claim_token(secret: bytes, attempt_id: str) -> str:
    """Opens `claim` once per boot. Derived again when create is sent."""
    return _token(secret, attempt_id, f"claim:{attempt_id}")


def run_token(secret: bytes, attempt_id: str, boot_id: str) -> str:
    """Opens everything after `claim`; the same boot gets the same one again."""
    return _token(secret, attempt_id, f"run:{attempt_id}:{boot_id}")


def attempt_tokens(secret: bytes, attempt: Attempt) -> tuple[SecretStr, ...]:
    """What must not be shown: both, as far as they exist, without the attempt id in front, which is no secret.

    Every spelling of a whole token holds one of its tag, also base64, which is found at each of its three alignments.
    """
    made = [claim_token(secret, attempt.id)]
    if attempt.boot_id:
        made.append(run_token(secret, attempt.id, attempt.boot_id))
    return tuple(SecretStr(token.partition(".")[2]) for token in made)


def token_attempt(token: str) -> str:
    """The attempt a token speaks for, not yet proved. Empty when it names none."""
    attempt_id, dot, _ = token.partition(".")
    return attempt_id if dot else ""


def token_sha256(token: str) -> str:
    """64 hex digits: what rows hold. Compare with `hmac.compare_digest`."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _token(secret: bytes, attempt_id: str, purpose: str) -> str:
    tag = hmac.digest(secret, purpose.encode(), "sha256")
    return f"{attempt_id}.{base64.urlsafe_b64encode(tag).rstrip(b'=').decode()}"
