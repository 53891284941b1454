"""One request to the hub at a time: token, redirects, timeouts, and errors told apart."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from pydantic import SecretStr

from gpurun.adapters.hub.part import PIECE_BYTES
from gpurun.adapters.hub.pauses import Pauses
from gpurun.adapters.hub.refusals import Asked, raise_for, raise_for_store
from gpurun.domain.errors import HubSilent, HubUnavailable, PinNotFound
from gpurun.domain.plan import HubKind

if TYPE_CHECKING:
    import httpx2

_CONNECT_TIMEOUT_S = 10.0
_MAX_REDIRECTS = 5
_MAX_PORT = 65_535


class HubWire:
    """Raises PinNotFound and HubUnavailable only. The token goes to `endpoint` and nowhere else."""

    def __init__(
        self, endpoint: str, token: SecretStr, pauses: Pauses, *, idle_timeout_s: float, at_terminal: bool
    ) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._token = token
        self._pauses = pauses
        self._idle_timeout_s = idle_timeout_s
        self._at_terminal = at_terminal
        self._client: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def asked(self, kind: HubKind, model_id: str, revision: str, path: str = "") -> Asked:
        return Asked(
            endpoint=self._endpoint,
            kind=kind,
            model_id=model_id,
            revision=revision,
            path=path,
            sent_token=bool(self._token.get_secret_value()),
            at_terminal=self._at_terminal,
        )

    def revision_url(self, asked: Asked) -> httpx2.URL:
        import httpx2

        url = f"{self._endpoint}/api/{asked.kind}s/{asked.model_id}/revision/{quote(asked.revision, safe='')}"
        return httpx2.URL(url).copy_merge_params({"expand": "sha"})  # else the names of all files come too

    def tree_url(self, asked: Asked) -> httpx2.URL:
        import httpx2

        url = httpx2.URL(f"{self._endpoint}/api/{asked.kind}s/{asked.model_id}/tree/{asked.revision}")
        return url.copy_merge_params({"recursive": "true", "expand": "false"})

    def file_url(self, asked: Asked) -> httpx2.URL:
        import httpx2
        from huggingface_hub import hf_hub_url

        return httpx2.URL(
            hf_hub_url(
                asked.model_id,
                asked.path,
                repo_type=asked.kind,
                revision=asked.revision,
                endpoint=self._endpoint,
            )
        )

    async def commit_of(self, asked: Asked) -> str | None:
        """The commit that the hub serves the file from, once it would serve it; None when it does not say."""
        url = self.file_url(asked)
        for _ in range(_MAX_REDIRECTS):
            async with self._send("HEAD", url, asked) as response:
                await self._raise_for(response, asked)
                commit: str | None = response.headers.get("X-Repo-Commit")
                if commit is not None or not response.has_redirect_location:
                    return commit
                url = self._redirected(response, asked)
        raise HubUnavailable(f"{asked}: the hub redirects in circles.")

    async def store_url(self, asked: Asked) -> httpx2.URL | None:
        """The signed address to which the hub sends who wants the file; None when it would give it itself.

        A secret: it opens the file for whoever has it.
        """
        url = self.file_url(asked)
        for _ in range(_MAX_REDIRECTS):
            async with self._send("HEAD", url, asked) as response:
                await self._raise_for(response, asked)
                if not response.has_redirect_location:
                    return None
                url = self._redirected(response, asked)
            if not self._is_hub(url):
                return url
        raise HubUnavailable(f"{asked}: the hub redirects in circles.")

    @contextlib.asynccontextmanager
    async def get(self, url: httpx2.URL, asked: Asked, *, start: int = 0) -> AsyncIterator[httpx2.Response]:
        """A 2xx answer after redirects, its body unread. With `start` it may be a 206 from there, or a whole 200."""
        for _ in range(_MAX_REDIRECTS):
            async with self._send("GET", url, asked, start=start) as response:
                if not response.has_redirect_location:
                    await self._raise_for(response, asked)
                    yield response
                    return
                url = self._redirected(response, asked)
        raise HubUnavailable(f"{asked}: the hub redirects in circles.")

    @contextlib.asynccontextmanager
    async def _send(
        self, method: str, url: httpx2.URL, asked: Asked, *, start: int = 0
    ) -> AsyncIterator[httpx2.Response]:
        import httpx2

        is_hub = self._is_hub(url)
        if is_hub:
            self._pauses.require_none(url)
        headers = {"Accept-Encoding": "identity"}
        if asked.sent_token and is_hub:
            headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        if start > 0:
            headers["Range"] = f"bytes={start}-"
        try:
            response = await self._http().send(self._http().build_request(method, url, headers=headers), stream=True)
        except httpx2.TransportError as exc:
            kind = HubSilent if is_hub else HubUnavailable
            raise kind(f"{asked}: {url.host} cannot be reached ({_words(exc)}).") from exc
        try:
            if is_hub:
                self._pauses.note(response)
            yield response
        finally:
            await response.aclose()

    async def _raise_for(self, response: httpx2.Response, asked: Asked) -> None:
        if self._is_hub(response.url):
            await raise_for(response, asked)
        else:
            raise_for_store(response, asked)

    def _redirected(self, response: httpx2.Response, asked: Asked) -> httpx2.URL:
        import httpx2

        try:
            url = response.url.join(response.headers["Location"])
        except httpx2.InvalidURL:  # whose words hold a part of it
            raise HubUnavailable(f"{asked}: the hub redirects to an address that is none.") from None
        if not url.host or (url.port or 0) > _MAX_PORT:
            raise HubUnavailable(f"{asked}: the hub redirects to an address that is none.")
        if url.scheme not in {"https", response.url.scheme}:
            raise HubUnavailable(f"{asked}: the hub redirects from {response.url.scheme} to {url.scheme}.")
        return url

    def _is_hub(self, url: httpx2.URL) -> bool:
        import httpx2

        hub = httpx2.URL(self._endpoint)
        return (url.scheme, url.host, url.port) == (hub.scheme, hub.host, hub.port)

    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            import httpx2

            # They log every address, and the store's addresses are signed.
            for name in ("httpx2", "httpcore2"):
                logging.getLogger(name).setLevel(logging.WARNING)
            timeout = httpx2.Timeout(self._idle_timeout_s, connect=min(_CONNECT_TIMEOUT_S, self._idle_timeout_s))
            self._client = httpx2.AsyncClient(timeout=timeout, headers={"User-Agent": "gpurun"})
        return self._client


async def pieces(response: httpx2.Response, asked: Asked) -> AsyncGenerator[bytes, None]:
    """The body as it is on the wire. Raises HubUnavailable when the connection breaks or falls silent."""
    import httpx2

    try:
        async for piece in response.aiter_raw(PIECE_BYTES):
            yield piece
    except httpx2.TransportError as exc:
        raise HubUnavailable(f"{asked}: the connection broke ({_words(exc)}).") from exc


async def whole(response: httpx2.Response, asked: Asked, *, max_bytes: int) -> bytes:
    """The whole body. Raises PinNotFound when it is longer than `max_bytes`."""
    data = bytearray()
    async for piece in pieces(response, asked):
        data += piece
        if len(data) > max_bytes:
            raise PinNotFound(f"{asked}: more than {max_bytes} bytes came.")
    return bytes(data)


def _words(exc: Exception) -> str:
    """Kind and text of a transport error; neither holds an address with its query."""
    return f"{type(exc).__name__}: {exc}".rstrip(": ")
