"""githubkit set up so that nothing is hidden: no retry, no shared cache, no stray redirect, a limit on time."""

from __future__ import annotations

from typing import TypeVar
from urllib.request import getproxies, proxy_bypass

import httpx
import msgspec
from githubkit import GitHub, Response
from githubkit.auth import BaseAuthStrategy
from githubkit.cache import MemCacheStrategy
from githubkit.throttling import LocalThrottler

import gpurun
from gpurun.adapters.github.errors import LeftTheHost

TIMEOUT = httpx.Timeout(20.0, connect=5.0)
CALL_LIMIT_S = 25.0
"""For a whole call of the port, with its token and all pages."""
API_VERSION = "2022-11-28"
"""The oldest dated version; GitHub Enterprise Server knows it too."""
CONNECTIONS_MAX = 100
"""GitHub asks for no more requests at a time."""

T = TypeVar("T")
Auth = TypeVar("Auth", bound=BaseAuthStrategy)
Param = str | int


class SharedTransport(httpx.AsyncBaseTransport):
    """Connections outlive the client that githubkit makes for each request."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Called after each request; the connections stay."""

    async def close(self) -> None:
        """Lets the connections go."""
        await self._inner.aclose()


def open_transport(api_url: str) -> httpx.AsyncBaseTransport:
    """Honours the usual proxy variables, which httpx ignores once it is handed a transport."""
    url = httpx.URL(api_url)
    proxy = None if proxy_bypass(url.host) else getproxies().get(url.scheme)
    limits = httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=20)
    return httpx.AsyncHTTPTransport(proxy=proxy, limits=limits)


def make(auth: Auth, *, api_url: str, transport: SharedTransport) -> GitHub[Auth]:
    """A client with that identity."""
    return GitHub(
        auth,
        base_url=api_url,
        user_agent=f"gpurun/{gpurun.__version__}",
        timeout=TIMEOUT,
        async_transport=transport,
        async_event_hooks={"response": [_stay_here, _tidy_limits]},
        # the default cache is shared by the whole process
        cache_strategy=MemCacheStrategy(),
        http_cache=False,
        throttler=LocalThrottler(CONNECTIONS_MAX),
        auto_retry=False,
    )


async def _stay_here(response: httpx.Response) -> None:
    """A renamed repository redirects within the API; anything else (a login page, another host) is an error."""
    if not response.has_redirect_location:
        return
    target = response.request.url.join(response.headers["location"])
    same_host = (target.scheme, target.netloc) == (response.request.url.scheme, response.request.url.netloc)
    keeps_method = response.request.method == "GET" or response.status_code in (307, 308)
    if not (same_host and keeps_method):
        raise LeftTheHost


async def _tidy_limits(response: httpx.Response) -> None:
    """A limit header that is no number, such as a date from a proxy, makes githubkit fail."""
    for name, instead in (("retry-after", "60"), ("x-ratelimit-reset", None)):
        value = response.headers.get(name)
        if value is None or (value.isdecimal() and len(value) <= 10):
            continue
        if instead is None:
            del response.headers[name]
        else:
            response.headers[name] = instead


class Calls:
    """Requests of one identity, with answers decoded to the fields that count."""

    def __init__(self, github: GitHub[Auth]) -> None:
        self._github = github

    async def get(self, path: str, answer: type[T], params: dict[str, Param] | None = None) -> T:
        return await self._send("GET", path, answer, params=params)

    async def page(self, path: str, answer: type[T], params: dict[str, Param]) -> tuple[T, str]:
        """With the cursor of the next page; empty behind the last one."""
        response = await self._request("GET", path, params=params)
        following = response.raw_response.links.get("next", {}).get("url", "")
        cursor = httpx.URL(following).params.get("cursor", "") if following else ""
        return msgspec.json.decode(response.content, type=answer), cursor

    async def post(self, path: str, body: dict[str, object], answer: type[T]) -> T:
        return await self._send("POST", path, answer, body=body)

    async def patch(self, path: str, body: dict[str, object], answer: type[T]) -> T:
        return await self._send("PATCH", path, answer, body=body)

    async def _send(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        params: dict[str, Param] | None = None,
        body: dict[str, object] | None = None,
    ) -> T:
        response = await self._request(method, path, params=params, body=body)
        return msgspec.json.decode(response.content, type=answer)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, Param] | None = None,
        body: dict[str, object] | None = None,
    ) -> Response[object]:
        headers = {"X-GitHub-Api-Version": API_VERSION}
        return await self._github.arequest(method, path, params=params, json=body, headers=headers)
