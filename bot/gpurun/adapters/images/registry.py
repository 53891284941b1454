"""`ports.bytes.Images` by the registry API. Only manifests are asked for, never layers.

Source: the OCI distribution specification, "Pulling manifests" and "Checking if content exists in the registry";
the token exchange is the one of the distribution project's documentation.
"""

from __future__ import annotations

import asyncio
import base64
import email.utils
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import httpx
import msgspec

from gpurun.adapters.images.login import Challenge, challenge_of, credentials
from gpurun.adapters.images.manifest import Manifest, platform_of_config, platforms_of_index, read_manifest
from gpurun.adapters.images.reference import Place, is_loopback, place_of
from gpurun.domain.errors import PinNotFound, RegistrySilent, RegistryUnavailable
from gpurun.domain.ids import ImageRef
from gpurun.domain.lock import ImagePin

TIMEOUT_S = 10.0
MANIFEST_MAX_BYTES = 4 * 1024 * 1024
"""What registries themselves accept at most, by the specification's advice."""
TOKEN_MAX_BYTES = 64 * 1024
"""Tokens of registries are a few kilobytes."""
ERROR_MAX_BYTES = 64 * 1024
RETRY_AFTER_MAX_S = 600.0
"""A registry is named by whoever wrote the file: it must not put a run to sleep for years."""
REDIRECTS_MAX = 5
PORT_MAX = 65535
ANSWER_TIMEOUT_S = 25.0
"""Of all requests of one `confirm` or `pin` together."""
MANIFEST_TYPES = [
    ("Accept", "application/vnd.oci.image.index.v1+json"),
    ("Accept", "application/vnd.oci.image.manifest.v1+json"),
    ("Accept", "application/vnd.docker.distribution.manifest.list.v2+json"),
    ("Accept", "application/vnd.docker.distribution.manifest.v2+json"),
]


_Headers = list[tuple[str, str]]


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""


class _Error(msgspec.Struct):
    code: str = ""


class _Errors(msgspec.Struct):
    errors: list[_Error] = []


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One manifest of one repository."""

    place: Place
    name: str
    """As a person wrote it."""
    reference: str
    """A digest or a tag."""
    shown: str

    @property
    def manifest_url(self) -> str:
        return f"{self.place.base_url}/v2/{self.place.repository}/manifests/{self.reference}"

    def blob_url(self, digest: str) -> str:
        return f"{self.place.base_url}/v2/{self.place.repository}/blobs/{digest}"


def _by_digest(image: ImageRef) -> _Wanted:
    return _Wanted(place_of(image.name), image.name, image.digest, str(image))


def _by_tag(name: str, tag: str) -> _Wanted:
    return _Wanted(place_of(name), name, tag, f"{name}:{tag}")


class RegistryImages:
    """Open it with `async with`. `docker_config` is docker's config.json; absent: anonymous."""

    def __init__(self, docker_config: Path | None = None, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._docker_config = docker_config or Path.home() / ".docker" / "config.json"
        self._http = httpx.AsyncClient(
            timeout=TIMEOUT_S,
            # a compressed answer could be a thousand times larger than what came
            headers={"Accept-Encoding": "identity"},
            follow_redirects=True,
            max_redirects=REDIRECTS_MAX,
            event_hooks={"request": [_to_a_port], "response": [_stay_on_https]},
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Lets the connections go."""
        await self._http.aclose()

    async def confirm(self, image: ImageRef) -> None:
        wanted = _by_digest(image)
        async with _answering(wanted):
            said = await self._digest(wanted)
        if said != image.digest:
            raise PinNotFound(f"The registry answers {said[:80]} when asked for {image}.", pin=image)

    async def pin(self, name: str, tag: str) -> ImagePin:
        wanted = _by_tag(name, tag)
        async with _answering(wanted):
            answer, headers = await self._head(wanted)
            await self._require(answer, wanted, headers)
            body, said = await self._manifest(wanted, headers)
            digest = _digest_of(body)
            if said is not None and said != digest:
                raise PinNotFound(f"The registry says that {wanted.shown} is {said[:80]!r}, but it sends {digest}.")
            platforms = await self._platforms(read_manifest(body, wanted.shown), digest, wanted, headers)
        return ImagePin(digest=digest, platforms=platforms)

    async def _platforms(
        self, manifest: Manifest, digest: str, wanted: _Wanted, headers: _Headers
    ) -> tuple[tuple[str, str], ...]:
        """Of a single manifest the one that its configuration names: one small blob more, and the lock shows it."""
        if manifest.manifests is not None:
            return platforms_of_index(manifest.manifests)
        if not manifest.config_digest:
            return ()
        platform = platform_of_config(await self._blob(wanted, manifest.config_digest, headers))
        return ((platform, digest),) if platform else ()

    async def _digest(self, wanted: _Wanted) -> str:
        """What the registry says that this manifest hashes to."""
        answer, headers = await self._head(wanted)
        await self._require(answer, wanted, headers)
        said = answer.headers.get("Docker-Content-Digest")
        if said is not None:
            return str(said)
        body, _ = await self._manifest(wanted, headers)  # some registries leave the header out
        return _digest_of(body)

    async def _head(self, wanted: _Wanted) -> tuple[httpx.Response, _Headers]:
        """HEAD of the manifest, once more with a login when the registry asks for one; and the headers that worked."""
        headers = MANIFEST_TYPES
        answer = await self._http.head(wanted.manifest_url, headers=headers)
        if answer.status_code == 401:
            login = await self._login(challenge_of(answer.headers.get("WWW-Authenticate", "")), wanted)
            if login:
                headers = [*headers, ("Authorization", login)]
                answer = await self._http.head(wanted.manifest_url, headers=headers)
        return answer, headers

    async def _login(self, challenge: Challenge, wanted: _Wanted) -> str:
        """The Authorization header that answers the challenge; empty when there is none."""
        pair = await asyncio.to_thread(credentials, self._docker_config, wanted.place.login_key)
        if challenge.scheme == "basic" and pair is not None:
            return f"Basic {base64.b64encode(':'.join(pair).encode()).decode()}"
        if challenge.scheme == "bearer":
            return f"Bearer {await self._token(challenge, pair, wanted)}"
        return ""

    async def _token(self, challenge: Challenge, pair: tuple[str, str] | None, wanted: _Wanted) -> str:
        """A pull token, anonymous without credentials, which never go to a realm in plain text."""
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
        async with self._http.stream("GET", realm, params=asked, auth=pair) as answer:
            _raise_for(answer, wanted)
            body = await _at_most(answer, TOKEN_MAX_BYTES)
        try:
            token = msgspec.json.decode(body, type=_Token)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise RegistryUnavailable(f"The login server of {wanted.name} answered without a token.") from exc
        told = token.token or token.access_token
        if not (told.isascii() and told.isprintable()):  # it becomes a header
            raise RegistryUnavailable(f"The login server of {wanted.name} answered with something that is no token.")
        return told

    async def _require(self, answer: httpx.Response, wanted: _Wanted, headers: _Headers) -> None:
        """Raises what the status means. A 404 to HEAD has no text, so GET is asked what it is that is missing."""
        if answer.status_code == 404 and await self._has_no_repository(wanted, headers):
            raise PinNotFound(
                f"The registry has no repository {wanted.place.repository}, which {wanted.shown} is in (404).",
                pin=wanted.shown,
            )
        _raise_for(answer, wanted)

    async def _has_no_repository(self, wanted: _Wanted, headers: _Headers) -> bool:
        async with self._http.stream("GET", wanted.manifest_url, headers=headers) as answer:
            body = await _at_most(answer, ERROR_MAX_BYTES)
        try:
            told = msgspec.json.decode(body, type=_Errors)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return any(error.code == "NAME_UNKNOWN" for error in told.errors)

    async def _manifest(self, wanted: _Wanted, headers: _Headers) -> tuple[bytes, str | None]:
        """Its bytes, and the digest that the registry says they have, if it does."""
        async with self._http.stream("GET", wanted.manifest_url, headers=headers) as answer:
            _raise_for(answer, wanted)
            return await _at_most(answer, MANIFEST_MAX_BYTES), answer.headers.get("Docker-Content-Digest")

    async def _blob(self, wanted: _Wanted, digest: str, headers: _Headers) -> bytes:
        """A small blob that hashes to its name; httpx drops the login where a redirect leaves the host."""
        async with self._http.stream("GET", wanted.blob_url(digest), headers=headers) as answer:
            _raise_for(answer, wanted)
            body = await _at_most(answer, MANIFEST_MAX_BYTES)
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
        raise RegistrySilent(f"The registry of {wanted.name} does not answer ({type(exc).__name__}).") from exc
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as exc:
        raise RegistryUnavailable(f"The registry of {wanted.name} does not answer ({type(exc).__name__}).") from exc


def _digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


async def _to_a_port(request: httpx.Request) -> None:
    """Names, realms and redirects may carry any number; connecting to such a one is no error of httpx.

    Raises: PinNotFound.
    """
    if (request.url.port or 0) > PORT_MAX:
        raise PinNotFound(f"{request.url.host} has no port {request.url.port}: the last one is {PORT_MAX}.")


async def _stay_on_https(response: httpx.Response) -> None:
    """Whoever answers over https must not send us to plain HTTP, where services of this machine and network listen.

    Raises: PinNotFound.
    """
    if not response.has_redirect_location:
        return
    target = response.request.url.join(response.headers["Location"])
    if response.request.url.scheme == "https" and target.scheme != "https":
        raise PinNotFound(f"{response.request.url.host} redirects to an address that is not https.")


async def _at_most(answer: httpx.Response, max_bytes: int) -> bytes:
    """The body as it is on the wire. Raises PinNotFound when it is longer."""
    body = bytearray()
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > max_bytes:
            raise PinNotFound(f"{answer.request.url.host} answered with more than {max_bytes >> 10} KiB.")
    return bytes(body)


def _may_be_plain(place: Place, netloc: str) -> bool:
    """A registry of this machine may have its login server here too; one elsewhere must not send us to ourselves."""
    return "@" not in netloc and is_loopback(netloc) and is_loopback(urlsplit(place.base_url).netloc)


def _raise_for(answer: httpx.Response, wanted: _Wanted) -> None:
    """The registry's status in our words."""
    status = answer.status_code
    if status in {401, 403}:
        raise PinNotFound(
            f"The registry has no image {wanted.shown}, or does not show it without a login.",
            hint="Check the name, or log the bot's machine in with `docker login`.",
            pin=wanted.shown,
        )
    if status == 429 or status >= 500:
        raise RegistryUnavailable(
            f"The registry of {wanted.name} answered {status}.", retry_after_s=_retry_after(answer)
        )
    if status >= 300:
        raise PinNotFound(f"The registry has no image {wanted.shown} (it answered {status}).", pin=wanted.shown)


def _retry_after(answer: httpx.Response) -> float | None:
    """Seconds, or an HTTP date, which is compared with the registry's own clock."""
    text = answer.headers.get("Retry-After", "")
    if text.isdecimal():
        return min(float(text), RETRY_AFTER_MAX_S)
    try:
        until, now = (email.utils.parsedate_to_datetime(one) for one in (text, answer.headers.get("Date", "")))
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, (until - now).total_seconds()), RETRY_AFTER_MAX_S)
