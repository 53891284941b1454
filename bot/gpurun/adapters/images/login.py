"""Credentials that `docker login` left on this machine, and the challenge that asks for them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pydantic import SecretStr

from gpurun.domain.image import RegistryLogin

_PARAMETER = re.compile(r'([A-Za-z_]+)="([^"]*)"')


class _Auth(msgspec.Struct):
    auth: str = ""


class _DockerConfig(msgspec.Struct):
    auths: dict[str, _Auth] = {}


@dataclass(frozen=True, slots=True)
class Challenge:
    """`WWW-Authenticate`: which scheme, and where a token comes from."""

    scheme: str
    """Lower case; `bearer`, `basic` or something else."""
    parameters: Mapping[str, str]


def challenge_of(header: str) -> Challenge:
    """An absent or odd header is a challenge with a scheme that nobody knows."""
    scheme, _, rest = header.strip().partition(" ")
    return Challenge(scheme.lower(), {name.lower(): value for name, value in _PARAMETER.findall(rest)})


def credentials(config: Path, login_keys: Sequence[str]) -> RegistryLogin | None:
    """The login of that registry from docker's config.json; None without. Blocking, one small file.

    Credential helpers are not asked: they are programs of the desktop.
    """
    try:
        auths = msgspec.json.decode(config.read_bytes(), type=_DockerConfig).auths
    except (OSError, msgspec.DecodeError):
        return None
    for key in login_keys:
        for written in (key, f"https://{key}", f"https://{key}/v1/", f"https://{key}/v2/"):
            if (found := auths.get(written)) is not None and (login := _login(found.auth)) is not None:
                return login
    return None


def _login(auth: str) -> RegistryLogin | None:
    try:
        user, colon, password = base64.b64decode(auth, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return RegistryLogin(username=user, password=SecretStr(password)) if colon and password else None
