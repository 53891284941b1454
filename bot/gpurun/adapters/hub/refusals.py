"""Turns the hub's refusals into errors that tell a person what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpurun.adapters.hub.pauses import retry_after_s
from gpurun.domain.errors import HubUnavailable, PinNotFound
from gpurun.domain.plan import HubKind, hub_path

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

_MAX_ERROR_BYTES = 64 * 1024
_TRY_AGAIN = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked of the hub, and how; never the token itself."""

    endpoint: str
    kind: HubKind
    model_id: str
    revision: str
    """A commit, or the branch or tag that one is asked of."""
    path: str
    """Empty when it was not about one file."""
    sent_token: bool
    at_terminal: bool = False
    """By somebody who sets the token himself; else by the bot, whose token an administrator sets."""

    @property
    def owner(self) -> str:
        """Of the token."""
        return "your" if self.at_terminal else "the bot's"

    @property
    def page(self) -> str:
        """For people."""
        return f"{self.endpoint}/{hub_path(self.kind, self.model_id)}"

    @property
    def pin(self) -> str:
        return f"{self.model_id} at {self.revision}"

    def __str__(self) -> str:
        return f"{self.path} of {self.pin}" if self.path else self.pin


def is_commit(ref: str) -> bool:
    """40 lower-case hex digits."""
    return re.fullmatch(r"[0-9a-f]{40}", ref) is not None


def is_start_of_commit(ref: str) -> bool:
    """7 to 40 lower-case hex digits; anything else is a branch or tag."""
    return re.fullmatch(r"[0-9a-f]{7,40}", ref) is not None


def raise_for_store(response: httpx2.Response, asked: Asked) -> None:
    """`raise_for` for a host that the hub sent us to."""
    if response.status_code >= 400:
        raise _elsewhere(response, asked)


async def raise_for(response: httpx2.Response, asked: Asked) -> None:
    """Nothing for 2xx and 3xx. Raises PinNotFound (a person must change something) or HubUnavailable (try again)."""
    if response.status_code < 400:
        return
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]  # re-exported without __all__

    if 0 < int(response.headers.get("content-length") or 0) <= _MAX_ERROR_BYTES:
        await _read(response, asked)
    try:
        hf_raise_for_status(response)
    except HfHubHTTPError as exc:
        raise _told_apart(exc, asked) from exc


async def _read(response: httpx2.Response, asked: Asked) -> None:
    """What the hub says of a refusal, which may break off."""
    import httpx2

    try:
        await response.aread()
    except httpx2.RequestError as exc:
        raise HubUnavailable(
            f"The hub answered {response.status_code} for {asked}, and the connection broke ({type(exc).__name__})."
        ) from exc


def _elsewhere(response: httpx2.Response, asked: Asked) -> PinNotFound | HubUnavailable:
    """From the store behind a signed address, which must not show up in a message."""
    status = response.status_code
    host = response.url.host
    if status == 404:
        return PinNotFound(
            f"{asked} is in the hub's list, but its store at {host} does not have it (404).", pin=asked.pin
        )
    # A signature expires: asking the hub again gives a fresh one.
    return HubUnavailable(
        f"The hub's store at {host} answered {status} for {asked}.", retry_after_s=retry_after_s(response)
    )


def _told_apart(exc: HfHubHTTPError, asked: Asked) -> PinNotFound | HubUnavailable:
    from huggingface_hub import errors

    status = exc.response.status_code
    if status >= 500 or status in _TRY_AGAIN:
        return HubUnavailable(f"The hub answered {status} for {asked}.", retry_after_s=retry_after_s(exc.response))
    if exc.response.headers.get("X-Error-Message") == "Invalid credentials in Authorization header":
        return _bad_token(asked)
    # The first that fits: GatedRepoError is a RepositoryNotFoundError.
    by_class = (
        (errors.GatedRepoError, _gated),
        (errors.DisabledRepoError, _disabled),
        (errors.RevisionNotFoundError, _no_revision),
        (errors.EntryNotFoundError, _no_file),
        (errors.RepositoryNotFoundError, _hidden),
    )
    for kind, tell in by_class:
        if isinstance(exc, kind):
            return tell(asked)
    by_status = {401: _hidden, 403: _forbidden, 404: _hidden}
    tell_status = by_status.get(status)
    return tell_status(asked) if tell_status else _refused(asked, status)


def _refused(asked: Asked, status: int) -> PinNotFound:
    return PinNotFound(f"The hub refused {asked} with status {status}.", pin=asked.pin)


def _bad_token(asked: Asked) -> PinNotFound:
    own = "Set GPURUN_HUB_TOKEN to one that it knows."
    hint = own if asked.at_terminal else "An administrator must renew GPURUN_HUB_TOKEN."
    return PinNotFound(f"The hub does not accept {asked.owner} token.", hint=hint)


def _disabled(asked: Asked) -> PinNotFound:
    return PinNotFound(
        f"The hub has disabled {asked.model_id}; nobody can download it.",
        hint="Use another one.",
        pin=asked.pin,
        closed=True,
    )


def _no_revision(asked: Asked) -> PinNotFound:
    if is_commit(asked.revision):
        return PinNotFound(
            f"{asked.model_id} has no commit {asked.revision}.",
            hint=f"Copy a full commit id from {asked.page}/commits/main.",
            pin=asked.pin,
        )
    if is_start_of_commit(asked.revision):
        return PinNotFound(
            f"{asked.model_id} has no commit that starts with {asked.revision}, or more than one.",
            hint=f"Copy a full commit id from {asked.page}/commits/main.",
            pin=asked.pin,
        )
    return PinNotFound(
        f"{asked.model_id} has no branch or tag {asked.revision!r}.",
        hint=f"{asked.page}/tree/main shows which ones there are.",
        pin=asked.pin,
    )


def _no_file(asked: Asked) -> PinNotFound:
    return PinNotFound(f"The hub has no {asked}.", pin=asked.pin)


def _gated(asked: Asked) -> PinNotFound:
    page = asked.page
    if not asked.sent_token:
        sent = "no token was sent" if asked.at_terminal else "the bot sent no token"
        then = "set GPURUN_HUB_TOKEN" if asked.at_terminal else "have an administrator set GPURUN_HUB_TOKEN"
        return PinNotFound(
            f"{asked.model_id} is gated, and {sent}.",
            hint=f"Accept its terms at {page}, then {then}.",
            pin=asked.pin,
            closed=True,
        )
    return PinNotFound(
        f"{asked.model_id} is gated, and the account of {asked.owner} token has no access to it.",
        hint=f"Accept its terms at {page} with that account.",
        pin=asked.pin,
        closed=True,
    )


def _hidden(asked: Asked) -> PinNotFound:
    """The hub answers alike for a private repository, one that does not exist and one that was renamed."""
    token = "a token was sent, but may not see it" if asked.sent_token else "no token was sent"
    return PinNotFound(
        f"The hub does not show {asked.model_id}: it does not exist, has another name, or is private ({token}).",
        hint=f"Check the spelling at {asked.page}; for a private one set GPURUN_HUB_TOKEN.",
        pin=asked.pin,
        closed=True,
    )


def _forbidden(asked: Asked) -> PinNotFound:
    token = f"{asked.owner} token may not read it" if asked.sent_token else "no token was sent"
    return PinNotFound(
        f"The hub forbids {asked} ({token}).",
        hint=f"Give {asked.owner} token read access to it.",
        pin=asked.pin,
        closed=True,
    )
