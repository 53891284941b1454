"""AES-256-GCM over one value, bound to the place where it may stand.

The nonce is 96 random bits: a key seals far fewer values than the 2^32 that NIST SP 800-38D allows for one.
"""

from __future__ import annotations

import os

from pydantic import SecretStr

from gpurun.adapters.vault.keyfile import Key
from gpurun.domain.secret import Sealed

NONCE_BYTES = 12


class DoesNotOpen(Exception):
    """Another key, another place, or changed bytes."""


def seal(key: Key, repo: str, name: str, value: SecretStr) -> Sealed:
    """Only `unseal` with the same key, repository and name gives the value back."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # a local run does without

    nonce = os.urandom(NONCE_BYTES)
    text = value.get_secret_value().encode("utf-8", "surrogateescape")
    return Sealed(key_id=key.id, data=nonce + AESGCM(key.secret).encrypt(nonce, text, _place(repo, name)))


def unseal(key: Key, repo: str, name: str, sealed: Sealed) -> SecretStr:
    """Raises DoesNotOpen."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce, text = sealed.data[:NONCE_BYTES], sealed.data[NONCE_BYTES:]
    try:
        value = AESGCM(key.secret).decrypt(nonce, text, _place(repo, name))
    except (InvalidTag, ValueError) as error:
        raise DoesNotOpen from error
    return SecretStr(value.decode("utf-8", "surrogateescape"))


def _place(repo: str, name: str) -> bytes:
    """Neither holds a NUL, so no two places read the same."""
    return b"gpurun secret 1\0" + repo.encode() + b"\0" + name.encode()
