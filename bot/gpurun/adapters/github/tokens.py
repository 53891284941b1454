"""The App's own proof of identity, and the installation tokens that it buys."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import anyio
import httpx
import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from githubkit import GitHubCore
from githubkit.auth import BaseAuthStrategy
from pydantic import SecretStr

from gpurun.adapters.github.answers import AccessToken, TokenRepository
from gpurun.domain.errors import ForgeRefused
from gpurun.domain.ids import RepoName
from gpurun.ports.clock import Clock

BACKDATE = timedelta(seconds=60)
"""For GitHub's clock being behind ours. Source: the App authentication docs."""
JWT_LIFE = timedelta(minutes=9)
"""From now; GitHub takes ten minutes at most, by its own clock."""
RENEW_BEFORE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class InstallationToken:
    """Lives for an hour."""

    value: SecretStr
    expires_at: datetime


class AppAuth(BaseAuthStrategy):
    """Signs requests as the App itself."""

    def __init__(self, app_id: int, private_key: SecretStr, clock: Clock) -> None:
        self._app_id = app_id
        self._private_key = private_key
        self._clock = clock
        self._key: RSAPrivateKey | None = None

    def get_auth_flow(self, github: GitHubCore[Any]) -> httpx.Auth:
        return _AppFlow(self)

    def json_web_token(self) -> str:
        """By the injected clock. Raises: ForgeRefused 401 when the key is none."""
        now = self._clock.now()
        claims = {"iss": str(self._app_id), "iat": now - BACKDATE, "exp": now + JWT_LIFE}
        if self._key is None:
            # checking its primes takes longer than a hundred signatures
            self._key = _read_key(self._private_key)
        return jwt.encode(claims, self._key, algorithm="RS256")


def _read_key(pem: SecretStr) -> RSAPrivateKey:
    try:
        key = load_pem_private_key(pem.get_secret_value().encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # the cause may quote the key
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise ForgeRefused(
            "The App's private key cannot be read; it must be RSA in PEM, without a password.", status=401
        )
    return key


class _AppFlow(httpx.Auth):
    def __init__(self, auth: AppAuth) -> None:
        self._auth = auth

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        request.headers["Authorization"] = f"Bearer {self._auth.json_web_token()}"
        yield request


class Tokens:
    """Keeps one token per installation, mints others on request."""

    def __init__(self, app: GitHubCore[AppAuth], clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._kept: dict[int, InstallationToken] = {}
        self._locks: dict[int, anyio.Lock] = {}

    async def of(self, installation_id: int, *, instead_of: InstallationToken | None = None) -> InstallationToken:
        """With every permission that was granted. Many callers at once cause one request.

        `instead_of`: the token that was refused; another one that came meanwhile is taken, else a new one is minted.
        """
        async with self._locks.setdefault(installation_id, anyio.Lock()):
            kept = self._kept.get(installation_id)
            if kept and kept != instead_of and kept.expires_at - self._clock.now() > RENEW_BEFORE:
                return kept
            minted = await self._mint(installation_id, body={})
            self._kept[installation_id] = minted
            return minted

    async def narrowed(
        self, installation_id: int, *, repo_id: int, permissions: Mapping[str, str]
    ) -> InstallationToken:
        """A new token for one repository and these permissions."""
        body: dict[str, object] = {"repository_ids": [repo_id], "permissions": dict(permissions)}
        return await self._mint(installation_id, body=body)

    async def named(
        self, installation_id: int, repo: RepoName, *, permissions: Mapping[str, str]
    ) -> tuple[InstallationToken, TokenRepository]:
        """The same for another repository of the same owner, by its name, and what GitHub says of that."""
        body: dict[str, object] = {"repositories": [repo.split("/")[1]], "permissions": dict(permissions)}
        answer = await self._ask(installation_id, body)
        found = answer.repositories[0] if answer.repositories else TokenRepository()
        return InstallationToken(SecretStr(answer.token), answer.expires_at), found

    async def _mint(self, installation_id: int, *, body: dict[str, object]) -> InstallationToken:
        answer = await self._ask(installation_id, body)
        return InstallationToken(SecretStr(answer.token), answer.expires_at)

    async def _ask(self, installation_id: int, body: dict[str, object]) -> AccessToken:
        response = await self._app.arequest("POST", f"/app/installations/{installation_id}/access_tokens", json=body)
        return msgspec.json.decode(response.content, type=AccessToken)


class InstallationAuth(BaseAuthStrategy):
    """Requests of one installation; a refused token is renewed once."""

    def __init__(self, tokens: Tokens, installation_id: int) -> None:
        self._tokens = tokens
        self._installation_id = installation_id

    def get_auth_flow(self, github: GitHubCore[Any]) -> httpx.Auth:
        return _InstallationFlow(self._tokens, self._installation_id)


class _InstallationFlow(httpx.Auth):
    def __init__(self, tokens: Tokens, installation_id: int) -> None:
        self._tokens = tokens
        self._installation_id = installation_id

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        token = await self._tokens.of(self._installation_id)
        response = yield _with(request, token)
        if response.status_code == 401:
            token = await self._tokens.of(self._installation_id, instead_of=token)
            yield _with(request, token)


def _with(request: httpx.Request, token: InstallationToken) -> httpx.Request:
    request.headers["Authorization"] = f"Bearer {token.value.get_secret_value()}"
    return request
