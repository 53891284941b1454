"""Appends to the log and the metrics: exactly once, masked again, within quota."""

from __future__ import annotations

import re
from collections import OrderedDict
from datetime import timedelta
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from gpurun.domain.errors import WrongOffset
from gpurun.domain.run import Attempt
from gpurun.domain.stream import StreamEnd, StreamName
from gpurun.http.agent_session import BODY_TIMEOUT_S, RECORDS
from gpurun.http.asgi import Refusal, answer, read_body
from gpurun.http.callers import Bearer, bearer, require_wanted
from gpurun.http.services import HttpServices
from gpurun.http.spec import orders
from gpurun.ports.store import Tx
from gpurun.telemetry.redact import Masker
from gpurun_agent import protocol

LAST_LINE_BYTES = 4096
"""Above the log's quota: room for the line that says so."""
MAX_MASKERS = 4096
SEEN_EVERY = timedelta(seconds=1)
"""Last contact is kept to the second, so that a fast stream does not write the attempt's row with every append."""

_NUMBER = re.compile(r"[0-9]{1,15}")


class StreamAppends:
    """`PUT /agent/v1/streams/<name>`."""

    def __init__(self, services: HttpServices) -> None:
        self._services = services
        self._quotas = {
            StreamName.LOG: services.log_quota_bytes + LAST_LINE_BYTES,
            StreamName.METRICS: services.metrics_quota_bytes,
        }
        self._maskers: OrderedDict[Bearer, Masker] = OrderedDict()
        """By proved run token: a cache, so that an append is one transaction."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send, rest: str) -> None:
        """Takes bytes at `offset`; what could be the start of a secret is left to the next append."""
        name = stream_name(rest)
        query = parameters(scope)
        offset = number(query, "offset")
        who = bearer(scope)
        masker = await self._masker(who)
        data = await read_body(scope, receive, limit=protocol.MAX_APPEND, timeout_s=BODY_TIMEOUT_S)
        if offset + len(data) > self._quotas[name]:
            raise Refusal(413, "The quota of this stream is used up.")
        masked = masker.mask(data) if query.get("end") == "1" else masker.take(data)

        def append(tx: Tx) -> tuple[Attempt, StreamEnd]:
            attempt = who.runs(tx.attempt(who.attempt_id))
            require_wanted(attempt)
            if attempt.last_seen_at is None or tx.now() - attempt.last_seen_at >= SEEN_EVERY:
                tx.saw(attempt.id)
            return attempt, tx.append(attempt.id, name, offset, masked)

        try:
            attempt, end = await self._services.store.write(append)
        except WrongOffset as wrong:
            attempt = await self._services.store.read(lambda tx: who.runs(tx.attempt(who.attempt_id)))
            await answer(send, 409, protocol.encode([("next", wrong.next), *orders(attempt)]), content_type=RECORDS)
            return
        fields = [("next", end.next), ("durable", end.durable), *orders(attempt)]
        await answer(send, 200, protocol.encode(fields), content_type=RECORDS)

    async def _masker(self, who: Bearer) -> Masker:
        masker = self._maskers.get(who)
        if masker is None:
            attempt = await self._services.store.read(lambda tx: who.runs(tx.attempt(who.attempt_id)))
            require_wanted(attempt)
            masker = Masker(self._services.masks(attempt))
            self._maskers[who] = masker
            if len(self._maskers) > MAX_MASKERS:
                self._maskers.popitem(last=False)
        else:
            self._maskers.move_to_end(who)
        return masker


def stream_name(word: str) -> StreamName:
    """Raises Refusal 404."""
    try:
        return StreamName(word)
    except ValueError:
        raise Refusal(404, "There is no such stream.") from None


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
