"""Summaries of metrics streams, read on only from where the last look ended."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial

from gpurun.domain.stream import StreamName
from gpurun.domain.telemetry import Summary
from gpurun.ports.store import Store, Tx
from gpurun.telemetry.summarise import Summariser

WINDOW_BYTES = 1024 * 1024
MAX_KEPT = 64


@dataclass(slots=True)
class _Read:
    offset: int = 0
    summariser: Summariser = field(default_factory=Summariser)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class MetricsViews:
    """A cache by attempt; forgetting one costs reading its stream again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, _Read] = OrderedDict()

    async def summary(self, attempt_id: str) -> Summary:
        """Of the whole stream as it is now."""
        kept = self._kept.setdefault(attempt_id, _Read())
        self._kept.move_to_end(attempt_id)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        async with kept.lock:
            while data := await self._store.read(partial(_window, attempt_id=attempt_id, offset=kept.offset)):
                kept.summariser.feed(data)
                kept.offset += len(data)
            return kept.summariser.summary()


def _window(tx: Tx, *, attempt_id: str, offset: int) -> bytes:
    return tx.read_stream(attempt_id, StreamName.METRICS, offset=offset, max_bytes=WINDOW_BYTES)
