"""`ports.bytes.Images` by the registry API. Only manifests are asked for, never layers.

Source: the OCI distribution specification, "Pulling manifests" and "Checking if content exists in the registry";
the token exchange is the one of the distribution project's documentation.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import httpx
import msgspec

from gpurun.adapters.images.answers import at_most, raise_for, silence, stay_on_https, to_a_port
from gpurun.adapters.images.login import Challenge, challenge_of, credentials
from gpurun.adapters.images.manifest import DIGEST, Manifest, platform_of_config, platforms_of_index, read_manifest
from gpurun.adapters.images.reference import Place, is_loopback, place_of
from gpurun.domain.errors import PinNotFound, RegistryUnavailable
from gpurun.domain.ids import ImageRef, ImageTag
from gpurun.domain.image import RegistryLogin, SeenImage
from gpurun.domain.lock import ImagePin, LockedImage
from gpurun.domain.quantity import quoted

TIMEOUT_S = 10.0
MANIFEST_MAX_BYTES = 4 * 1024 * 1024
"""What registries themselves accept at most, by the specification's advice."""
TOKEN_MAX_BYTES = 64 * 1024
"""Tokens of registries are a few kilobytes."""
ERROR_MAX_BYTES = 64 * 1024
REDIRECTS_MAX = 5
ANSWER_TIMEOUT_S = 25.0
"""Of all requests of one `confirm` or `pin` together."""
PLATFORMS_TIMEOUT_S = 8.0
"""Of those that only ask for platforms."""
TAG_TIMEOUT_S = 3.0
"""To say where a tag points to, which is only told to people."""
PLATFORMS_KEPT = 4096
"""Digests whose platforms are remembered; some hundred bytes each."""
MANIFEST_TYPES = [
    ("Accept", "application/vnd.oci.image.index.v1+json"),
    ("Accept", "application/vnd.oci.image.manifest.v1+json"),
    ("Accept", "application/vnd.docker.distribution.manifest.list.v2+json"),
    ("Accept", "application/vnd.docker.distribution.manifest.v2+json"),
]


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""


class _Error(msgspec.Struct):
    code: str = ""


class _Errors(msgspec.Struct):
    errors: list[_Error] = []


@dataclass(frozen=True, slots=True)
class _Access:
    """What opens a repository."""

    headers: list[tuple[str, str]]
    """Of a request that worked."""
    username: str = ""
    """Whose login it is; empty when anybody's would do."""


_ANYBODY = _Access(MANIFEST_TYPES)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One manifest of one repository."""

    place: Place
    name: str
    """As a person wrote it."""
    reference: str
    """A digest or a tag."""
    shown: str
    login: RegistryLogin | None
    """Instead of the one that `docker login` left."""
    login_at: str
    """Where `docker login` would be used."""

    @property
    def manifest_url(self) -> str:
        return f"{self.place.base_url}/v2/{self.place.repository}/manifests/{self.reference}"

    def blob_url(self, digest: str) -> str:
        return f"{self.place.base_url}/v2/{self.place.repository}/blobs/{digest}"


class RegistryImages:
    """Open it with `async with`. `docker_config` is docker's config.json; absent: anonymous.

    `at_terminal`: who asks is logged in on this machine himself.
    """

    def __init__(
        self,
        docker_config: Path | None = None,
        *,
        at_terminal: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._login_at = "on this machine" if at_terminal else "where the bot is"
        self._platforms_of: dict[str, tuple[str, ...]] = {}
        """By digest, without who may read it: who asks has been let in before."""
        self._docker_config = docker_config or Path.home() / ".docker" / "config.json"
        self._http = httpx.AsyncClient(
            timeout=TIMEOUT_S,
            # a compressed answer could be a thousand times larger than what came
            headers={"Accept-Encoding": "identity"},
            follow_redirects=True,
            max_redirects=REDIRECTS_MAX,
            event_hooks={"request": [to_a_port], "response": [stay_on_https]},
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Lets the connections go."""
        await self._http.aclose()

    def _by_digest(self, image: ImageRef, login: RegistryLogin | None) -> _Wanted:
        return _Wanted(place_of(image.name), image.name, image.digest, str(image), login, self._login_at)

    def _by_tag(self, name: str, tag: str, login: RegistryLogin | None) -> _Wanted:
        return _Wanted(place_of(name), name, tag, f"{name}:{tag}", login, self._login_at)

    async def confirm(
        self, image: ImageRef, *, locked: LockedImage | None = None, login: RegistryLogin | None = None
    ) -> SeenImage:
        wanted = self._by_digest(image, login)
        async with _answering(wanted):
            said, access = await self._digest(wanted)
            if said != image.digest:
                raise PinNotFound(f"The registry answers {said[:80]} when asked for {image}.", pin=image)
            known = tuple(name for name, _ in locked.pin.platforms) if locked is not None else ()
            platforms = known or await self._platforms_if_told(image.digest, wanted, access)
            now = "" if locked is None else await self._tag_if_told(locked.ref, login, access)
            return SeenImage(platforms=platforms, tag_points_to=now)

    async def _platforms_if_told(self, digest: str, wanted: _Wanted, access: _Access) -> tuple[str, ...]:
        """Of a digest that is there; asked for once, since digests stay. A run does not fail for want of them.

        Raises: PinNotFound for what is no image.
        """
        if (known := self._platforms_of.get(digest)) is not None:
            return known
        try:
            async with asyncio.timeout(PLATFORMS_TIMEOUT_S):
                body, _ = await self._manifest(wanted, access)
        except (httpx.HTTPError, PinNotFound, RegistryUnavailable, TimeoutError):
            return ()
        if _digest_of(body) != digest:
            return ()
        manifest = read_manifest(body, wanted.shown)
        try:
            async with asyncio.timeout(PLATFORMS_TIMEOUT_S):
                found = await self._platforms(manifest, digest, wanted, access)
        except (httpx.HTTPError, PinNotFound, RegistryUnavailable, TimeoutError):
            return ()
        if len(self._platforms_of) >= PLATFORMS_KEPT:
            self._platforms_of.clear()
        self._platforms_of[digest] = tuple(name for name, _ in found)
        return self._platforms_of[digest]

    async def pin(self, name: str, tag: str, *, login: RegistryLogin | None = None) -> ImagePin:
        wanted = self._by_tag(name, tag, login)
        async with _answering(wanted):
            answer, access = await self._head(wanted)
            await self._require(answer, wanted, access)
            body, said = await self._manifest(wanted, access)
            digest = _digest_of(body)
            if said is not None and said != digest:
                raise PinNotFound(f"The registry says that {wanted.shown} is {said[:80]!r}, but it sends {digest}.")
            platforms = await self._platforms(read_manifest(body, wanted.shown), digest, wanted, access)
        return ImagePin(digest=digest, platforms=platforms)

    async def _tag_if_told(self, ref: ImageTag, login: RegistryLogin | None, access: _Access) -> str:
        """What the registry says in one request; nobody waits long for it, and no answer is no failure."""
        wanted = self._by_tag(ref.name, ref.tag, login)
        try:
            async with asyncio.timeout(TAG_TIMEOUT_S):
                answer = await self._http.head(wanted.manifest_url, headers=access.headers)
        except (httpx.HTTPError, PinNotFound, TimeoutError):
            return ""
        said = answer.headers.get("Docker-Content-Digest", "") if answer.status_code == 200 else ""
        return said if DIGEST.fullmatch(said) else ""

    async def _platforms(
        self, manifest: Manifest, digest: str, wanted: _Wanted, access: _Access
    ) -> tuple[tuple[str, str], ...]:
        """Of a single manifest the one that its configuration names: one small blob more, and the lock shows it."""
        if manifest.manifests is not None:
            return platforms_of_index(manifest.manifests)
        if not manifest.config_digest:
            return ()
        platform = platform_of_config(await self._blob(wanted, manifest.config_digest, access))
        return ((platform, digest),) if platform else ()

    async def _digest(self, wanted: _Wanted) -> tuple[str, _Access]:
        """What the registry says that this manifest hashes to, and what it let us in with."""
        answer, access = await self._head(wanted)
        await self._require(answer, wanted, access)
        said = answer.headers.get("Docker-Content-Digest")
        if said is not None:
            return str(said), access
        body, _ = await self._manifest(wanted, access)  # some registries leave the header out
        return _digest_of(body), access

    async def _head(self, wanted: _Wanted) -> tuple[httpx.Response, _Access]:
        """HEAD of the manifest, once more with a login when the registry asks for one; and what worked.

        HEAD and not GET: Docker Hub counts each GET of a manifest as a pull.
        """
        access = _ANYBODY
        answer = await self._http.head(wanted.manifest_url, headers=access.headers)
        if answer.status_code == 401:
            access = await self._login(challenge_of(answer.headers.get("WWW-Authenticate", "")), wanted)
            if access is not _ANYBODY:
                answer = await self._http.head(wanted.manifest_url, headers=access.headers)
        return answer, access

    async def _login(self, challenge: Challenge, wanted: _Wanted) -> _Access:
        """What answers the challenge; `_ANYBODY` when nothing does."""
        login = wanted.login
        if login is None:
            login = await asyncio.to_thread(credentials, self._docker_config, wanted.place.login_keys)
        if challenge.scheme == "basic" and login is not None:
            pair = f"{login.username}:{login.password.get_secret_value()}"
            sent = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif challenge.scheme == "bearer":
            sent = f"Bearer {await self._token(challenge, login, wanted)}"
        else:
            return _ANYBODY
        return _Access([*MANIFEST_TYPES, ("Authorization", sent)], login.username if login else "")

    async def _token(self, challenge: Challenge, login: RegistryLogin | None, wanted: _Wanted) -> str:
        """A pull token, anonymous without a login, which never goes to a realm in plain text.

        The scope is ours: some registries name none, or one for pushing too. What else is in the realm's query stays.
        """
        realm = challenge.parameters.get("realm", "")
        try:
            where = urlsplit(realm)
        except ValueError as exc:
            raise PinNotFound(
                f"The registry of {wanted.name} wants a login at {realm!r}, which is no address."
            ) from exc
        if where.scheme != "https" and not _may_be_plain(wanted.place, where.netloc):
            raise PinNotFound(f"The registry of {wanted.name} wants a login at {realm!r}, which is not https.")
        asked = {"scope": f"repository:{wanted.place.repository}:pull"}
        if service := challenge.parameters.get("service"):
            asked["service"] = service
        if login is not None:
            asked["account"] = login.username
        pair = (login.username, login.password.get_secret_value()) if login is not None else None
        async with self._http.stream("GET", httpx.URL(realm).copy_merge_params(asked), auth=pair) as answer:
            if answer.status_code == 401 and login is not None:
                raise PinNotFound(
                    f"The registry of {wanted.name} does not know the login of {quoted(login.username)}, "
                    "or its password is another one.",
                    hint="Passwords and tokens of registries can expire: try it with `docker login`.",
                    pin=wanted.shown,
                )
            _raise_for(answer, wanted, _Access([], login.username if login else ""))
            body = await at_most(answer, TOKEN_MAX_BYTES)
        try:
            token = msgspec.json.decode(body, type=_Token)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise RegistryUnavailable(f"The login server of {wanted.name} answered without a token.") from exc
        told = token.token or token.access_token
        if not (told.isascii() and told.isprintable()):  # it becomes a header
            raise RegistryUnavailable(f"The login server of {wanted.name} answered with something that is no token.")
        return told

    async def _require(self, answer: httpx.Response, wanted: _Wanted, access: _Access) -> None:
        """Raises what the status means. A 404 to HEAD has no text, so GET is asked what it is that is missing."""
        if answer.status_code == 404 and await self._has_no_repository(wanted, access):
            raise PinNotFound(
                f"The registry has no repository {wanted.place.repository}, which {wanted.shown} is in (404).",
                hint="Check the name in `image:`." if "@" not in wanted.shown else "",
                pin=wanted.shown,
            )
        _raise_for(answer, wanted, access)

    async def _has_no_repository(self, wanted: _Wanted, access: _Access) -> bool:
        async with self._http.stream("GET", wanted.manifest_url, headers=access.headers) as answer:
            body = await at_most(answer, ERROR_MAX_BYTES)
        try:
            told = msgspec.json.decode(body, type=_Errors)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return any(error.code == "NAME_UNKNOWN" for error in told.errors)

    async def _manifest(self, wanted: _Wanted, access: _Access) -> tuple[bytes, str | None]:
        """Its bytes, and the digest that the registry says they have, if it does."""
        async with self._http.stream("GET", wanted.manifest_url, headers=access.headers) as answer:
            _raise_for(answer, wanted, access)
            return await at_most(answer, MANIFEST_MAX_BYTES), answer.headers.get("Docker-Content-Digest")

    async def _blob(self, wanted: _Wanted, digest: str, access: _Access) -> bytes:
        """A small blob that hashes to its name; httpx drops the login where a redirect leaves the host."""
        async with self._http.stream("GET", wanted.blob_url(digest), headers=access.headers) as answer:
            _raise_for(answer, wanted, access)
            body = await at_most(answer, MANIFEST_MAX_BYTES)
        if _digest_of(body) != digest:
            raise PinNotFound(f"The registry sends other bytes for the configuration of {wanted.shown} than its name.")
        return body


@asynccontextmanager
async def _answering(wanted: _Wanted) -> AsyncIterator[None]:
    """Raises RegistryUnavailable when the registry does not answer, or not within ANSWER_TIMEOUT_S."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            yield
    except httpx.TransportError as exc:
        raise silence(exc, name=wanted.name) from exc
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as exc:
        raise RegistryUnavailable(
            f"The registry of {wanted.name} does not answer ({type(exc).__name__}).", hint="Try again later."
        ) from exc


def _digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _may_be_plain(place: Place, netloc: str) -> bool:
    """A registry of this machine may have its login server here too; one elsewhere must not send us to ourselves."""
    return "@" not in netloc and is_loopback(netloc) and is_loopback(urlsplit(place.base_url).netloc)


def _raise_for(answer: httpx.Response, wanted: _Wanted, access: _Access) -> None:
    raise_for(answer, name=wanted.name, shown=wanted.shown, username=access.username, login_at=wanted.login_at)
