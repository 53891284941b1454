"""`POST /github`: raw bytes, signature, six fields, one durable row, 202.

The order is the defence: nothing of an unsigned request is parsed, and nothing is asked of GitHub in the request, which
gives up after 10 s and never sends again.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
import structlog
from pydantic import SecretStr
from starlette.types import Receive, Scope, Send

from gpurun.domain.delivery import Delivery
from gpurun.domain.errors import PinNotFound
from gpurun.domain.ids import RepoName
from gpurun.http.asgi import ClientGone, Refusal, answer, length_of, read_undeclared, refuse, sole_headers
from gpurun.ports.clock import Clock
from gpurun.ports.store import Store

PATH = "/github"
"""Where deliveries go; `app.yml` and the guides say so too."""

MAX_BODY = 25 * 1024 * 1024
"""GitHub sends no larger payload.

Source: docs.github.com, "Webhook events and payloads", read 2026-12-01.
"""
BODY_TIMEOUT_S = 10.0
MAX_BUFFERED = 256 * 1024 * 1024
"""Bytes of unfinished or unverified bodies in this process at a time; more are told to come later."""
UNSIGNED_EVERY_S = 60.0
"""How often the log tells of unsigned deliveries: anybody can send them."""

ACTIONS: dict[str, frozenset[str]] = {
    "issue_comment": frozenset({"created"}),
    "pull_request": frozenset(
        {"opened", "synchronize", "reopened", "closed", "converted_to_draft", "ready_for_review", "edited"}
    ),
    "check_run": frozenset({"rerequested", "requested_action"}),
    "check_suite": frozenset({"rerequested"}),
    "installation": frozenset({"suspend", "unsuspend", "new_permissions_accepted"}),
}
"""Events that become rows, by action. Everything else is answered and forgotten."""

_WITHOUT_REPO = "installation"
_CHECKS = frozenset({"check_run", "check_suite"})

_LENGTH, _SIGNED, _DELIVERY_ID, _EVENT, _TYPE = (
    b"content-length",
    b"x-hub-signature-256",
    b"x-github-delivery",
    b"x-github-event",
    b"content-type",
)
_HEADERS = frozenset({_LENGTH, _SIGNED, _DELIVERY_ID, _EVENT, _TYPE})

_GUID = re.compile(rb"[0-9A-Za-z\-]{1,64}")
_SIGNATURE = re.compile(rb"sha256=[0-9a-f]{64}")

log = structlog.get_logger()

_Id = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
"""Numbers that JSON carries exactly."""
_Number = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class _Installation(msgspec.Struct):
    id: _Id


class _Repository(msgspec.Struct):
    full_name: str


class _Numbered(msgspec.Struct):
    number: _Number


class _Identified(msgspec.Struct):
    id: _Id


class _Envelope(msgspec.Struct):
    action: str | None = None
    installation: _Installation | None = None
    repository: _Repository | None = None
    issue: _Numbered | None = None
    pull_request: _Numbered | None = None
    check_run: _Identified | None = None
    check_suite: _Identified | None = None
    number: _Number | None = None


_decoder = msgspec.json.Decoder(_Envelope)


class Webhook:
    """ASGI endpoint. `secrets`: one, or two while a secret is being changed; empty ones do not count."""

    def __init__(self, *, store: Store, clock: Clock, secrets: Iterable[SecretStr]) -> None:
        self._store = store
        self._clock = clock
        self._keys = tuple(s.get_secret_value().encode() for s in secrets if s.get_secret_value())
        self._buffered = 0
        self._unsigned = _UnsignedLog(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one delivery."""
        try:
            status, sentence = await self._deliver(scope, receive)
        except Refusal as refusal:
            await refuse(send, refusal)
        except ClientGone:
            return
        except Exception:
            # The border of the route: nothing was promised, the sweep of lost deliveries finds it again.
            log.exception("webhook_not_stored")
            await answer(send, 503, b"Not stored; deliver it again later.\n", headers=[(b"retry-after", b"10")])
        else:
            await answer(send, status, sentence)

    async def _deliver(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        if scope["method"] != "POST":
            raise Refusal(405, "Deliveries are POSTed.", headers=[(b"allow", b"POST")])
        if not self._keys:
            raise Refusal(503, "No webhook secret is set on this server (GPURUN_WEBHOOK_SECRET).")
        headers = sole_headers(scope, _HEADERS)
        body = await self._signed_body(headers, receive)
        event, guid = _named(headers)
        if event == "ping":
            return 200, b"pong\n"
        if event not in ACTIONS:
            return 202, b"Ignored: this event is not used.\n"
        delivery = _delivery(event, guid, body, self._clock)
        if delivery is None:
            return 202, b"Ignored: nothing to do for it.\n"
        new = await self._store.accept(delivery)
        return 202, b"Accepted.\n" if new else b"Accepted before.\n"

    async def _signed_body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """The raw body, proved to be signed. Raises Refusal 413, 503, 401."""
        length = length_of(headers.get(_LENGTH, b""))
        if length is not None and length > MAX_BODY:
            raise Refusal(413, f"The body is larger than {MAX_BODY} bytes.")
        signature = headers.get(_SIGNED, b"")
        if not _SIGNATURE.fullmatch(signature):
            raise self._unsigned.tell()
        held = 0

        def came(n_bytes: int) -> None:
            # what is here counts, not what was announced: an announcement costs its sender nothing
            nonlocal held
            if self._buffered + n_bytes > MAX_BUFFERED:
                raise Refusal(503, "Too many large deliveries at once.", headers=[(b"retry-after", b"10")])
            held += n_bytes
            self._buffered += n_bytes

        try:
            body = await read_undeclared(receive, limit=MAX_BODY, timeout_s=BODY_TIMEOUT_S, came=came)
        finally:
            self._buffered -= held
        if not self._signed(body, signature):
            raise self._unsigned.tell()
        return body

    def _signed(self, body: bytes, signature: bytes) -> bool:
        return any(hmac.compare_digest(signature, sign(key, body)) for key in self._keys)


class _UnsignedLog:
    """Once a minute, and without a word of the sender's: it may be anybody, or GitHub with another secret."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_at: float | None = None
        self._untold = 0

    def tell(self) -> Refusal:
        """The one answer to whatever is not signed, logged or counted."""
        now = self._clock.monotonic()
        if self._told_at is not None and now - self._told_at < UNSIGNED_EVERY_S:
            self._untold += 1
        else:
            log.warning(
                "delivery_unsigned",
                suppressed=self._untold,
                hint="From GitHub? Compare GPURUN_WEBHOOK_SECRET with the secret on the App's settings page.",
            )
            self._told_at, self._untold = now, 0
        return Refusal(401, "A valid X-Hub-Signature-256 is needed.")


def sign(key: bytes, body: bytes) -> bytes:
    """The value of `X-Hub-Signature-256`."""
    return b"sha256=" + hmac.digest(key, body, "sha256").hex().encode()


def _named(headers: Mapping[bytes, bytes]) -> tuple[str, str]:
    """Event and delivery id of a signed request. Raises Refusal 400."""
    guid, event = headers.get(_DELIVERY_ID, b""), headers.get(_EVENT)
    if not _GUID.fullmatch(guid):
        raise Refusal(400, "One X-GitHub-Delivery is needed.")
    if event is None:
        raise Refusal(400, "One X-GitHub-Event is needed.")
    if headers.get(_TYPE, b"").split(b";", 1)[0].strip().lower() != b"application/json":
        raise Refusal(400, "Set the webhook's content type to application/json.")
    return event.decode("latin-1"), guid.decode()


def _delivery(event: str, guid: str, body: bytes, clock: Clock) -> Delivery | None:
    """None for an action that is not used or a sender that is no installation. Raises Refusal 400."""
    try:
        str(body, "utf-8")
        envelope = _decoder.decode(body)
        if envelope.action not in ACTIONS[event] or envelope.installation is None:
            return None
        repo = "" if event == _WITHOUT_REPO else RepoName(envelope.repository.full_name if envelope.repository else "")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, PinNotFound):
        raise Refusal(400, "The body is not the JSON of this event.") from None
    return Delivery(
        guid=guid,
        event=event,
        action=envelope.action or "",
        installation_id=envelope.installation.id,
        repo=repo,
        number=_place(event, envelope),
        body=body,
        received_at=clock.now(),
    )


def _place(event: str, envelope: _Envelope) -> int:
    """What its row is in order with (`Delivery.number`).

    The pull requests that a check names are not used: there are none for a fork, and a press that has to wait until it
    is proved must not hold up commands.
    """
    if event in _CHECKS:
        check = envelope.check_run or envelope.check_suite
        return -check.id if check else 0
    numbered = envelope.issue or envelope.pull_request
    return numbered.number if numbered else envelope.number or 0
