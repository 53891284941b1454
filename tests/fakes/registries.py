"""Public registries as their token servers answer, behind `httpx`: state is images, who may read them, and passwords.

hub = DockerHub()
hub.put("library/python", "3.12", public=True)
hub.users["ci"] = "s3cret"; hub.readers["org/app"] = {"ci"}
RegistryImages(config, transport=hub.transport())
hub.requests                      # `HEAD registry-1.docker.io/v2/library/python/manifests/3.12`

Each class says what is the registry's own and where that was seen. The rest is the distribution project's
specification (https://distribution.github.io/distribution/spec/auth/token, 2026-12-01).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import ClassVar

import httpx

CONFIG = b'{"os": "linux", "architecture": "amd64"}'


class PublicRegistry:
    """The common part."""

    host: ClassVar[str]
    realm: ClassVar[str]
    service: ClassVar[str] = ""
    names_scope: ClassVar[bool] = True

    def __init__(self) -> None:
        self.users: dict[str, str] = {}
        """Passwords or tokens."""
        self.readers: dict[str, set[str]] = {}
        """Who may read a repository that is not public."""
        self.requests: list[str] = []
        self.limited = False
        """Whoever asks now has asked too much."""
        self._public: set[str] = set()
        self._contents: dict[tuple[str, str], bytes] = {}
        self._tokens: dict[str, frozenset[str]] = {}

    def put(self, repository: str, tag: str, *, public: bool) -> str:
        """A single image; its digest."""
        config = f"sha256:{hashlib.sha256(CONFIG).hexdigest()}"
        body = json.dumps({"schemaVersion": 2, "config": {"size": 1, "digest": config}, "layers": [], "x": repository})
        digest = f"sha256:{hashlib.sha256(body.encode()).hexdigest()}"
        self._contents |= {(repository, one): body.encode() for one in (tag, digest)}
        self._contents[repository, config] = CONFIG
        self._public |= {repository} if public else set()
        return digest

    def transport(self) -> httpx.AsyncBaseTransport:
        """For a client."""
        return _Transport(self)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """To one request of anybody."""
        return self._answer(request)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.host}{request.url.path}")
        if str(request.url).partition("?")[0] == self.realm.partition("?")[0]:
            return self._token(request)
        assert request.url.host == self.host, request.url
        assert request.headers.get("Authorization", "Bearer ").startswith("Bearer "), "a password for the registry"
        repository, _, reference = request.url.path.removeprefix("/v2/").rsplit("/", 2)
        readable = self._tokens.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if readable is None or repository not in readable:
            return httpx.Response(401, headers={"WWW-Authenticate": self._challenge(repository)}, json=_UNAUTHORIZED)
        if self.limited:
            return httpx.Response(429, json={"errors": [{"code": "TOOMANYREQUESTS"}]})
        content = self._contents.get((repository, reference))
        if content is None:
            return httpx.Response(404, json={"errors": [{"code": "MANIFEST_UNKNOWN"}]})
        headers = {"Docker-Content-Digest": f"sha256:{hashlib.sha256(content).hexdigest()}"}
        return httpx.Response(200, headers=headers, content=content)

    def _challenge(self, repository: str) -> str:
        parts = [f'realm="{self.realm}"']
        parts += [f'service="{self.service}"'] if self.service else []
        parts += [f'scope="repository:{repository}:pull"'] if self.names_scope else []
        return f"Bearer {','.join(parts)}"

    def _token(self, request: httpx.Request) -> httpx.Response:
        asked = request.url.params
        kind, repository, actions = asked["scope"].split(":")
        assert (kind, actions, asked.get("service", "")) == ("repository", "pull", self.service)
        user = self._user(request.headers)
        if user is None:
            return httpx.Response(401, json=_UNAUTHORIZED)
        may = repository in self._public or (user != "" and user in self.readers.get(repository, set()))
        return self._grant(user, repository if may else "")

    def _grant(self, user: str, repository: str) -> httpx.Response:
        """A token that opens the repository; empty: none that may be read. The specification: fewer rights than were
        asked for are no error.
        """
        token = f"t{len(self._tokens)}"
        self._tokens[token] = frozenset({repository} - {""})
        return httpx.Response(200, json={"token": token, "expires_in": 300})

    def _user(self, headers: Mapping[str, str]) -> str | None:
        """Empty without a login; None for one that is not known."""
        if "Authorization" not in headers:
            return ""
        user, _, password = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode().partition(":")
        return user if self.users.get(user) == password else None


class _Transport(httpx.AsyncBaseTransport):
    def __init__(self, registry: PublicRegistry) -> None:
        self._registry = registry

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        told = self._registry.answer(request)
        # as from a socket: nothing of the body was read yet
        return httpx.Response(told.status_code, headers=told.headers, stream=httpx.ByteStream(told.content))


_UNAUTHORIZED = {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required", "detail": None}]}


class DockerHub(PublicRegistry):
    """Everybody gets a token; one for a private or unknown repository opens nothing, and the manifest answers 401.

    https://github.com/distribution/distribution/issues/1203 (2015-11-23): challenge, and a token with `"access":[]`.
    https://docs.docker.com/docker-hub/usage/pulls (2026-12-01): 429, and that HEAD of a manifest counts as no pull.
    """

    host = "registry-1.docker.io"
    realm = "https://auth.docker.io/token"
    service = "registry.docker.io"


class Ghcr(PublicRegistry):
    """No token for what may not be read: 401 to anybody, and 403 `DENIED` to a login that may not.

    https://github.com/openai/tunnel-client/issues/75 (2026-09-22): 401 at `/token` for a private package.
    https://github.com/kedacore/http-add-on/issues/48 (2021-02-05): `denied: permission_denied: read_package`.
    """

    host = "ghcr.io"
    realm = "https://ghcr.io/token"
    service = "ghcr.io"

    def _grant(self, user: str, repository: str) -> httpx.Response:
        if repository:
            return super()._grant(user, repository)
        code = "DENIED" if user else "UNAUTHORIZED"
        return httpx.Response(403 if user else 401, json={"errors": [{"code": code, "message": "denied"}]})


class Ngc(PublicRegistry):
    """No `service`, and a page of HTML for 401. The user of a login is always `$oauthtoken`.

    https://github.com/sapcc/keppel/pull/731 (2026-06-01): the challenge, and a token for anybody.
    https://github.com/google/go-containerregistry/issues/728 (2020-06-08): the login, the page.
    """

    host = "nvcr.io"
    realm = "https://nvcr.io/proxy_auth"

    def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = super()._answer(request)
        if answer.status_code != 401:
            return answer
        kept = {name: value for name, value in answer.headers.items() if name == "www-authenticate"}
        return httpx.Response(401, headers=kept, html="<html><head><title>401 Authorization Required</title></head>")


class OldNgc(Ngc):
    """With a scope of its own in the realm, for pushing too.

    https://issues.apache.org/jira/browse/MESOS-10092 (2020-01-22).
    """

    realm = "https://nvcr.io/proxy_auth?scope=repository:nvidia/tensorflow:pull,push"
    names_scope = False


class Quay(PublicRegistry):
    """The challenge names no scope; a token that opens nothing for what is private, and the manifest answers 401.

    https://github.com/OctopusDeploy/Issues/issues/5076 (2018-11-11): no scope.
    https://github.com/rpardini/docker-registry-proxy/issues/5 (2018-11-04): 200 at `/v2/auth`, then 401.
    """

    host = "quay.io"
    realm = "https://quay.io/v2/auth"
    service = "quay.io"
    names_scope = False
