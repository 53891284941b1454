"""The fake App's RSA key: made once per process, since it takes about 80 ms."""

from __future__ import annotations

from functools import cache

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key


@cache
def app_key(index: int = 0) -> RSAPrivateKey:
    """Another `index` is another key."""
    del index
    return generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: RSAPrivateKey) -> str:
    """The text that GitHub lets people download."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ).decode()
