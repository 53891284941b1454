"""GitHub's rate limits as state: one set of buckets for each installation, by the injected clock.

Source: https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from gpurun.ports.clock import Clock
from tests.fakes.github.answers import Refusal

POINTS_PER_HOUR = 5000
"""The primary limit: one a request."""
WRITES_PER_MINUTE, WRITES_PER_HOUR = 80, 500
"""Requests that make content; here every POST, PATCH, PUT and DELETE."""
POINTS_PER_MINUTE, READ_POINTS, WRITE_POINTS = 900, 1, 5
PENALTY = timedelta(minutes=1)
BAN_AFTER = 20
"""Requests in spite of a limit until the App is banned. GitHub does not say how many it takes."""
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)

SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."


@dataclass(eq=False)
class Bucket:
    """What one installation has used."""

    window_began: datetime | None = None
    used: int = 0
    """In the hour that began then."""
    exhausted_until: datetime | None = None
    """A test said so."""
    writes: deque[datetime] = field(default_factory=deque)
    """Of the last hour."""
    spent: deque[tuple[datetime, int]] = field(default_factory=deque)
    """Points of the last minute."""
    limited_until: datetime | None = None
    """By a secondary limit."""
    ignored: int = 0
    """Requests that came in spite of it."""


class Limits:
    """All installations. `secondary_says`: how the secondary limit is told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[int, Bucket] = {}
        self.points_per_hour = POINTS_PER_HOUR
        self.secondary_says: Literal["retry-after", "words"] = "retry-after"
        self.secondary_status: Literal[403, 429] = 403
        self.primary_hits = 0
        self.secondary_hits = 0
        """Answers that said no, over all installations."""
        self.banned: set[int] = set()
        """Installations that kept asking."""

    def of(self, installation_id: int) -> Bucket:
        """Made when it is first asked for."""
        return self._buckets.setdefault(installation_id, Bucket())

    def spend(self, installation_id: int, method: str) -> None:
        """One request. Raises Refusal when there is nothing left for it; then it has no effect."""
        bucket, now = self.of(installation_id), self._clock.now()
        self._primary(bucket, installation_id, now)
        self._secondary(bucket, installation_id, now, writes=method not in ("GET", "HEAD"))

    def _primary(self, bucket: Bucket, installation_id: int, now: datetime) -> None:
        if bucket.window_began is None or now - bucket.window_began >= HOUR:
            bucket.window_began, bucket.used = now, 0
        if self._exhausted(bucket, now):
            self.primary_hits += 1
            self._ignored(bucket, installation_id)
            raise Refusal(403, f"API rate limit exceeded for installation ID {installation_id}.")
        bucket.used += 1

    def _secondary(self, bucket: Bucket, installation_id: int, now: datetime, *, writes: bool) -> None:
        if bucket.limited_until is not None and now < bucket.limited_until:
            self._ignored(bucket, installation_id)
            self._refuse(bucket, now)
        while bucket.writes and now - bucket.writes[0] >= HOUR:
            bucket.writes.popleft()
        while bucket.spent and now - bucket.spent[0][0] >= MINUTE:
            bucket.spent.popleft()
        points = WRITE_POINTS if writes else READ_POINTS
        too_fast = sum(one for _, one in bucket.spent) + points > POINTS_PER_MINUTE
        if writes:
            last_minute = sum(1 for at in bucket.writes if now - at < MINUTE)
            too_fast = too_fast or last_minute >= WRITES_PER_MINUTE or len(bucket.writes) >= WRITES_PER_HOUR
        if too_fast:
            bucket.limited_until = now + PENALTY
            self._refuse(bucket, now)
        bucket.spent.append((now, points))
        if writes:
            bucket.writes.append(now)

    def _refuse(self, bucket: Bucket, now: datetime) -> None:
        self.secondary_hits += 1
        assert bucket.limited_until is not None
        wait_s = int((bucket.limited_until - now).total_seconds()) + 1
        headers = {"retry-after": str(wait_s)} if self.secondary_says == "retry-after" else {}
        raise Refusal(self.secondary_status, SECONDARY, headers=headers)

    def _ignored(self, bucket: Bucket, installation_id: int) -> None:
        bucket.ignored += 1
        if bucket.ignored >= BAN_AFTER:
            self.banned.add(installation_id)

    def _exhausted(self, bucket: Bucket, now: datetime) -> bool:
        told = bucket.exhausted_until is not None and now < bucket.exhausted_until
        return told or bucket.used >= self.points_per_hour

    def headers(self, installation_id: int) -> dict[str, str]:
        """On every answer of the API."""
        bucket, now = self.of(installation_id), self._clock.now()
        exhausted = self._exhausted(bucket, now)
        reset = (bucket.window_began or now) + HOUR
        if bucket.exhausted_until is not None and now < bucket.exhausted_until:
            reset = bucket.exhausted_until
        return {
            "x-ratelimit-limit": str(self.points_per_hour),
            "x-ratelimit-remaining": "0" if exhausted else str(self.points_per_hour - bucket.used),
            "x-ratelimit-used": str(bucket.used),
            "x-ratelimit-reset": str(int(reset.timestamp())),
            "x-ratelimit-resource": "core",
        }

    def exhaust(self, installation_ids: list[int], until: datetime) -> None:
        """The primary limit of these is used up until then."""
        for installation_id in installation_ids:
            self.of(installation_id).exhausted_until = until

    def writes_in_last_hour(self, installation_id: int) -> int:
        """Of what took effect."""
        now = self._clock.now()
        return sum(1 for at in self.of(installation_id).writes if now - at < HOUR)
