"""`ports.bytes.Images` by the registry API. Only manifests are asked for, never layers.

Source: the OCI distribution specification, "Pulling manifests" and "Checking if content exists in the registry";
the token exchange is the one of the distribution project's documentation.
"""

from __future__ import annotations

import asyncio
import base64
import email.utils
import hashlib
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import httpx
import msgspec

from gpurun.adapters.images.login import Challenge, challenge_of, credentials
from gpurun.adapters.images.reference import Place, is_loopback, place_of
from gpurun.domain.errors import PinNotFound, RegistryUnavailable
from gpurun.domain.ids import ImageRef

TIMEOUT_S = 10.0
MANIFEST_MAX_BYTES = 4 * 1024 * 1024
"""What registries themselves accept at most, by the specification's advice."""
TOKEN_MAX_BYTES = 64 * 1024
"""Tokens of registries are a few kilobytes."""
RETRY_AFTER_MAX_S = 600.0
"""A registry is named by whoever wrote the file: it must not put a run to sleep for years."""
REDIRECTS_MAX = 5
CONFIRM_TIMEOUT_S = 25.0
"""Of all requests of one `confirm` together."""
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
            event_hooks={"response": [_stay_on_https]},
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
        try:
            async with asyncio.timeout(CONFIRM_TIMEOUT_S):
                said = await self._digest(place_of(image), image)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as exc:
            raise RegistryUnavailable(f"The registry of {image.name} does not answer ({type(exc).__name__}).") from exc
        if said != image.digest:
            raise PinNotFound(f"The registry answers {said[:80]} when asked for {image}.")

    async def _digest(self, place: Place, image: ImageRef) -> str:
        """What the registry says that this manifest hashes to."""
        answer, headers = await self._head(place, image)
        _raise_for(answer, image)
        said = answer.headers.get("Docker-Content-Digest")
        return str(said) if said is not None else await self._digest_of_body(place, image, headers)

    async def _head(self, place: Place, image: ImageRef) -> tuple[httpx.Response, _Headers]:
        """HEAD of the manifest, once more with a login when the registry asks for one; and the headers that worked."""
        headers = MANIFEST_TYPES
        url = _manifest_url(place, image)
        answer = await self._http.head(url, headers=headers)
        if answer.status_code == 401:
            login = await self._login(place, challenge_of(answer.headers.get("WWW-Authenticate", "")), image)
            if login:
                headers = [*headers, ("Authorization", login)]
                answer = await self._http.head(url, headers=headers)
        return answer, headers

    async def _login(self, place: Place, challenge: Challenge, image: ImageRef) -> str:
        """The Authorization header that answers the challenge; empty when there is none."""
        pair = await asyncio.to_thread(credentials, self._docker_config, place.login_key)
        if challenge.scheme == "basic" and pair is not None:
            return f"Basic {base64.b64encode(':'.join(pair).encode()).decode()}"
        if challenge.scheme == "bearer":
            return f"Bearer {await self._token(place, challenge, pair, image)}"
        return ""

    async def _token(self, place: Place, challenge: Challenge, pair: tuple[str, str] | None, image: ImageRef) -> str:
        """A pull token, anonymous without credentials, which never go to a realm in plain text."""
        realm = challenge.parameters.get("realm", "")
        where = urlsplit(realm)
        if where.scheme != "https" and not _may_be_plain(place, where.netloc):
            raise PinNotFound(f"The registry of {image.name} wants a login at {realm!r}, which is not https.")
        asked = {"scope": f"repository:{place.repository}:pull"}
        if service := challenge.parameters.get("service"):
            asked["service"] = service
        async with self._http.stream("GET", realm, params=asked, auth=pair) as answer:
            _raise_for(answer, image)
            body = await _at_most(answer, TOKEN_MAX_BYTES)
        try:
            token = msgspec.json.decode(body, type=_Token)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise RegistryUnavailable(f"The login server of {image.name} answered without a token.") from exc
        return token.token or token.access_token

    async def _digest_of_body(self, place: Place, image: ImageRef, headers: _Headers) -> str:
        """For registries that leave the header out: the digest is the hash of the manifest."""
        async with self._http.stream("GET", _manifest_url(place, image), headers=headers) as answer:
            _raise_for(answer, image)
            manifest = await _at_most(answer, MANIFEST_MAX_BYTES)
        return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


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


def _manifest_url(place: Place, image: ImageRef) -> str:
    return f"{place.base_url}/v2/{place.repository}/manifests/{image.digest}"


def _raise_for(answer: httpx.Response, image: ImageRef) -> None:
    """The registry's status in our words."""
    status = answer.status_code
    if status in {401, 403}:
        raise PinNotFound(
            f"The registry has no image {image}, or does not show it without a login.",
            hint="Check the name, or log the bot's machine in with `docker login`.",
        )
    if status == 429 or status >= 500:
        raise RegistryUnavailable(
            f"The registry of {image.name} answered {status}.", retry_after_s=_retry_after(answer)
        )
    if status >= 300:
        raise PinNotFound(f"The registry has no image {image} (it answered {status}).")


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
