"""Answers of registries: read within bounds, and in our words."""

from __future__ import annotations

import email.utils

import httpx

from gpurun.domain.errors import PinNotFound, RegistryUnavailable
from gpurun.domain.quantity import quoted

RETRY_AFTER_MAX_S = 600.0
"""A registry is named by whoever wrote the file: it must not put a run to sleep for years."""
PORT_MAX = 65535


async def to_a_port(request: httpx.Request) -> None:
    """Names, realms and redirects may carry any number; connecting to such a one is no error of httpx.

    Raises: PinNotFound.
    """
    if (request.url.port or 0) > PORT_MAX:
        raise PinNotFound(f"{request.url.host} has no port {request.url.port}: the last one is {PORT_MAX}.")


async def stay_on_https(response: httpx.Response) -> None:
    """Whoever answers over https must not send us to plain HTTP, where services of this machine and network listen.

    Raises: PinNotFound.
    """
    if not response.has_redirect_location:
        return
    target = response.request.url.join(response.headers["Location"])
    if response.request.url.scheme == "https" and target.scheme != "https":
        raise PinNotFound(f"{response.request.url.host} redirects to an address that is not https.")


async def at_most(answer: httpx.Response, max_bytes: int) -> bytes:
    """The body as it is on the wire. Raises PinNotFound when it is longer."""
    body = bytearray()
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > max_bytes:
            raise PinNotFound(f"{answer.request.url.host} answered with more than {max_bytes >> 10} KiB.")
    return bytes(body)


def raise_for(answer: httpx.Response, *, name: str, shown: str, username: str) -> None:
    """The registry's status in our words. `username`: who asked; empty when nobody was logged in."""
    status = answer.status_code
    if status in {401, 403}:
        raise _no_access(shown, username)
    if status == 429 or status >= 500:
        raise RegistryUnavailable(f"The registry of {name} answered {status}.", retry_after_s=_retry_after(answer))
    if status >= 300:
        raise PinNotFound(f"The registry has no image {shown} (it answered {status}).", pin=shown)


def _no_access(shown: str, username: str) -> PinNotFound:
    """Registries do not tell a private image from one that is not there, so that nobody can look for names."""
    if username:
        return PinNotFound(
            f"The registry has no image {shown}, or the login of {quoted(username)} may not read it.",
            hint="Check the name, and what that login may read.",
            pin=shown,
        )
    return PinNotFound(
        f"The registry has no image {shown}, or does not show it without a login.",
        hint="Check the name; or name a login, `registry: {username: …, password: SECRET_NAME}`, or use `docker login` "
        "where the bot is.",
        pin=shown,
    )


def _retry_after(answer: httpx.Response) -> float | None:
    """Seconds, or an HTTP date, which is compared with the registry's own clock."""
    text = answer.headers.get("Retry-After", "")
    if text.isdecimal():
        return min(float(text), RETRY_AFTER_MAX_S)
    try:
        until, now = (email.utils.parsedate_to_datetime(one) for one in (text, answer.headers.get("Date", "")))
        wait_s = (until - now).total_seconds()  # one with a zone, one without: TypeError
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, wait_s), RETRY_AFTER_MAX_S)
