"""Appends to the log and the metrics: exactly once, masked again, within quota."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from urllib.parse import parse_qsl

import structlog
from anyio import to_thread
from starlette.types import Receive, Scope, Send

from gpurun.domain.errors import GpurunError, Transient
from gpurun.domain.run import Attempt
from gpurun.domain.stream import OF_AGENTS, Piece, StreamName, Taken
from gpurun.http.agent_session import BODY_TIMEOUT_S, RECORDS
from gpurun.http.asgi import TEXT, Refusal, answer, read_body
from gpurun.http.callers import Bearer, bearer, refusal_of, require_wanted
from gpurun.http.services import HttpServices
from gpurun.http.short_way import Answered, WholeAppend
from gpurun.http.spec import orders_of
from gpurun.run.tokens import token_attempt, token_sha256
from gpurun_agent import protocol

AT_ONCE_BYTES = 128 * 1024
"""More is masked beside the event loop: a millisecond would be noticed by others."""
LAST_LINE_BYTES = 4096
"""Above the log's quota: room for the line that says so."""
MAX_KNOWN = 4096

Headers = tuple[tuple[bytes, bytes], ...]

_NUMBER = re.compile(r"[0-9]{1,15}")
_RECORDS = (b"content-type", RECORDS)

log = structlog.get_logger()


class StreamAppends:
    """`PUT /agent/v1/streams/<name>`."""

    def __init__(self, services: HttpServices) -> None:
        self._services = services
        self._quotas = {
            StreamName.LOG: services.log_quota_bytes + LAST_LINE_BYTES,
            StreamName.METRICS: services.metrics_quota_bytes,
        }
        self._known: OrderedDict[Bearer, Attempt] = OrderedDict()
        """By proved run token: a cache, so that an append is one transaction."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send, rest: str) -> None:
        """Takes bytes at `offset`; what could be the start of a secret is left to the next append."""
        name = stream_name(rest)
        query = parameters(scope)
        offset = number(query, "offset")
        who = bearer(scope)
        attempt = await self._attempt(who)
        data = await read_body(scope, receive, limit=protocol.MAX_APPEND, timeout_s=BODY_TIMEOUT_S)
        if offset + len(data) > self._quotas[name]:
            raise Refusal(413, "The quota of this stream is used up.")
        masked = await self._masked(attempt, data, final=query.get("end") == "1")
        piece = Piece(attempt_id=who.attempt_id, token_sha256=who.sha256, name=name, offset=offset, data=masked)
        status, told = self._told(attempt, await self._services.store.append(piece))
        await answer(send, status, told, content_type=RECORDS)

    def at_once(self, attempt_id: str, asked: WholeAppend, answered: Answered) -> bool:
        """`short_way.Take`: for an agent that was heard before, and bytes that are masked in a moment."""
        who = Bearer(attempt_id, token_sha256(asked.token))
        attempt = self._known.get(who) if token_attempt(asked.token) == attempt_id else None
        size = len(asked.data)
        if attempt is None or size > AT_ONCE_BYTES or asked.offset + size > self._quotas[asked.name]:
            return False
        masker = self._services.maskers.at_once(attempt)
        if masker is None:
            return False
        masked = masker.take(asked.data)
        piece = Piece(attempt_id=attempt_id, token_sha256=who.sha256, name=asked.name, offset=asked.offset, data=masked)
        try:
            appending = asyncio.ensure_future(self._services.store.append(piece))
        except GpurunError:  # it is closed; the usual way says so
            return False
        appending.add_done_callback(lambda done: answered(*self._answer(attempt, done)))
        self._known.move_to_end(who)
        return True

    def _answer(self, attempt: Attempt, done: asyncio.Future[Taken]) -> tuple[int, bytes, Headers]:
        try:
            return self._outcome(attempt, done)
        except Exception:  # the border of the short way: without an answer the connection would wait for ever
            log.exception("agent_append_failed", attempt=attempt.id)
            return 500, Refusal(500, "The server failed; try again.").body, ((b"content-type", TEXT),)

    def _outcome(self, attempt: Attempt, done: asyncio.Future[Taken]) -> tuple[int, bytes, Headers]:
        error = Transient("The server ends; try again.") if done.cancelled() else done.exception()
        if error is None:
            return *self._told(attempt, done.result()), (_RECORDS,)
        refusal = refusal_of(error)
        if refusal is None:
            log.error("agent_append_failed", attempt=attempt.id, exc_info=error)
            refusal = Refusal(500, "The server failed; try again.")
        return refusal.status, refusal.body, ((b"content-type", TEXT), *refusal.headers)

    def _told(self, attempt: Attempt, taken: Taken) -> tuple[int, bytes]:
        """Status and records."""
        told = orders_of(stop=taken.stop, hard_deadline=taken.hard_deadline)
        version = self._services.maskers.version(attempt.id)
        if version:
            told = *told, ("masks", version)
        if taken.took:
            return 200, protocol.encode([("next", taken.end.next), ("durable", taken.end.durable), *told])
        return 409, protocol.encode([("next", taken.end.next), *told])

    async def _masked(self, attempt: Attempt, data: bytes, *, final: bool) -> bytes:
        """With the secrets of this moment, which is after the body came."""
        masker = await self._services.maskers.beside(attempt)
        mask = masker.mask if final else masker.take
        return mask(data) if len(data) <= AT_ONCE_BYTES else await to_thread.run_sync(mask, data)

    async def _attempt(self, who: Bearer) -> Attempt:
        attempt = self._known.get(who)
        if attempt is None:
            attempt = await self._services.store.read(lambda tx: who.runs(tx.attempt(who.attempt_id)))
            require_wanted(attempt)
            await self._services.vault.learn(attempt.id)  # another process may have answered its claim
            if self._services.maskers.cannot_know(attempt.id):
                return attempt  # asked again with the next append: the key may be brought back
            self._known[who] = attempt
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(who)
        return attempt


def stream_name(word: str) -> StreamName:
    """Raises Refusal 404."""
    name = next((one for one in OF_AGENTS if one.value == word), None)
    if name is None:
        raise Refusal(404, "There is no such stream.")
    return name


def parameters(scope: Scope) -> dict[str, str]:
    """The query. Raises Refusal 400."""
    try:
        return dict(parse_qsl(scope["query_string"].decode("ascii"), max_num_fields=8, strict_parsing=True))
    except ValueError:
        raise Refusal(400, "The query cannot be read.") from None


def number(query: dict[str, str], name: str) -> int:
    """A byte count from the query. Raises Refusal 400."""
    value = query.get(name, "")
    if not _NUMBER.fullmatch(value):
        raise Refusal(400, f"`{name}` must be a number of bytes.")
    return int(value)
