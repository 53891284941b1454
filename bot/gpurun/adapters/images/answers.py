"""Answers of registries: read within bounds, and in our words."""

from __future__ import annotations

import contextlib
import email.utils
import os
import socket
import ssl

import httpx

from gpurun.domain.errors import PinNotFound, RegistrySilent, RegistryUnavailable
from gpurun.domain.quantity import quoted

RETRY_AFTER_MAX_S = 600.0
"""A registry is named by whoever wrote the file: it must not put a run to sleep for years."""
PORT_MAX = 65535
_CAUSES_MAX = 10


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


def raise_for(answer: httpx.Response, *, name: str, shown: str, username: str, login_at: str) -> None:
    """The registry's status in our words. `username`: who asked; empty when nobody was logged in. `login_at`: where
    `docker login` would help.
    """
    status = answer.status_code
    if status in {401, 403}:
        raise _no_access(shown, username, login_at)
    if status == 429 or status >= 500:
        raise RegistryUnavailable(
            f"The registry of {name} answered {status}.",
            retry_after_s=_retry_after(answer),
            hint="It was asked too often. Wait a while, or use `docker login`: most registries count logins apart."
            if status == 429
            else "The fault is there, not here. Try again later.",
        )
    if status >= 300:
        # what a digest names was there once, and who pinned it is told on which day
        hint = "" if "@" in shown else "Check the name and the tag in `image:`."
        raise PinNotFound(f"The registry has no image {shown} (it answered {status}).", hint=hint, pin=shown)


def silence(error: Exception, *, name: str) -> RegistrySilent:
    """Nobody answered: which host that was, and why, in the system's words. Those of a server are nobody's to read."""
    host = ""
    with contextlib.suppress(RuntimeError):
        host = error.request.url.host if isinstance(error, httpx.RequestError) else ""
    why = _systems_word(error) or type(error).__name__
    return RegistrySilent(
        f"The registry of {name} does not answer ({f'{host}: ' if host else ''}{why}).",
        hint="Check the network, and the name in `image:`. A mirror of your own is written there, too.",
    )


def _systems_word(error: BaseException | None) -> str:
    """Of the fault that caused the others, as `Name or service not known`; empty when the system had none."""
    word = ""
    for _ in range(_CAUSES_MAX):
        if error is None:
            break
        if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
            # asyncio puts words of its own, with the address, behind the number
            word = (error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno)) or word
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        error = inner or error.__cause__ or error.__context__
    return word


def _no_access(shown: str, username: str, login_at: str) -> PinNotFound:
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
        f"{login_at}.",
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
