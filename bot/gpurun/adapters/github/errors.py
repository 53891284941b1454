"""The one place where GitHub's and its client's errors become ours."""

from __future__ import annotations

from datetime import datetime

import httpx
import msgspec
from githubkit.exception import RequestError, RequestFailed

from gpurun.domain.errors import ForgeLimited, ForgeRefused, ForgeSuspended, ForgeUnavailable, GpurunError

LIMIT_PAUSE_S = 60.0
"""GitHub's advice for a limit that names no time.

Source: https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
"""
MESSAGE_MAX_CHARS = 300


class LeftTheHost(Exception):
    """A redirect to another host, or one that would turn a write into a read."""


class _Said(msgspec.Struct):
    """GitHub's error body."""

    message: str = ""
    errors: msgspec.Raw = msgspec.Raw(b"")


def translate(exc: Exception, *, now: datetime) -> Exception:
    """What to raise instead. An exception that is neither GitHub's nor the network's comes back as it is."""
    cause = innermost(exc)
    match cause:
        case RequestFailed():
            return _refusal(cause.response.raw_response, now=now)
        case LeftTheHost() | httpx.TooManyRedirects():
            return ForgeRefused(
                "GitHub's API redirects to somewhere else than an API. Check GPURUN_GITHUB_API_URL.", status=302
            )
        case TimeoutError() | httpx.TransportError() | msgspec.MsgspecError():
            return ForgeUnavailable(_no_answer(cause))
        case _:
            return cause


def is_refused(exc: Exception, status: int, *, now: datetime) -> bool:
    """Whether it is GitHub's refusal with that status."""
    error = translate(exc, now=now)
    return isinstance(error, ForgeRefused) and error.status == status


def _no_answer(cause: Exception) -> str:
    match cause:
        case TimeoutError() | httpx.TimeoutException():
            return "GitHub did not answer in time."
        case msgspec.MsgspecError():
            return "GitHub's answer is not the JSON that its API promises. If this stays, check GPURUN_GITHUB_API_URL."
        case _:
            return f"GitHub could not be reached ({type(cause).__name__})."


def innermost(exc: Exception) -> Exception:
    """The client wraps whatever went wrong, also in the token call that comes before the request."""
    while isinstance(exc, RequestError) and not isinstance(exc, RequestFailed):
        inner: Exception = exc.exc
        exc = inner
    return exc


def _refusal(response: httpx.Response, *, now: datetime) -> GpurunError:
    said = _said(response)
    status = response.status_code
    what = f"GitHub answered {status} to {response.request.method} {response.request.url.path}: {said}"
    if status in (403, 429) and _is_limit(response, said):
        pause_s = _pause_s(response, now=now)
        return ForgeLimited(what, retry_after_s=pause_s or LIMIT_PAUSE_S, told=pause_s is not None)
    # 409 is a conflict with another write at the same moment
    if status >= 500 or status in (408, 409):
        return ForgeUnavailable(what)
    if status == 403 and "suspended" in said.lower():
        return ForgeSuspended(what, status=status)
    return ForgeRefused(what, status=status)


def _said(response: httpx.Response) -> str:
    try:
        body = msgspec.json.decode(response.content, type=_Said)
    except msgspec.MsgspecError:
        return "no JSON"
    return f"{body.message} {bytes(body.errors).decode(errors='replace')}".strip()[:MESSAGE_MAX_CHARS]


def _is_limit(response: httpx.Response, said: str) -> bool:
    """Primary limits say so in headers, secondary ones in a header or only in words."""
    headers = response.headers
    named = "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"
    return named or response.status_code == 429 or "rate limit" in said.lower()


def _pause_s(response: httpx.Response, *, now: datetime) -> float | None:
    """What GitHub named; None when it named nothing."""
    headers = response.headers
    if after := headers.get("retry-after"):
        return max(float(after), 1.0)
    if headers.get("x-ratelimit-remaining") == "0" and (reset := headers.get("x-ratelimit-reset")):
        return max(float(reset) - now.timestamp(), 1.0)
    return None
