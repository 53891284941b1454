"""When the hub may be asked again, for everything in this process that asks it.

The hub counts requests by kind, for each account or address, in windows of five minutes, and says with every answer how
many are left: `RateLimit: "resolver";r=0;t=90`.
Source: https://huggingface.co/docs/hub/rate-limits (read 2026-12-01).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpurun.domain.errors import HubUnavailable
from gpurun.ports.clock import Clock

if TYPE_CHECKING:
    import httpx2

MAX_PAUSE_S = 3600.0
_KINDS = {"api": "api", "resolver": "resolver", "resolvers": "resolver", "pages": "pages"}


class Pauses:
    """One pause for each kind of request: `api`, `resolver` (files) and `pages`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def require_none(self, url: httpx2.URL) -> None:
        """Raises HubUnavailable, with the seconds that are left, while requests of this kind must wait."""
        kind = kind_of(url)
        left_s = self._until.get(kind, 0.0) - self._clock.monotonic()
        if left_s > 0:
            raise HubUnavailable(
                f"The hub takes no more requests of the kind {kind!r} from here for {left_s:.0f} s.",
                retry_after_s=left_s,
            )

    def note(self, response: httpx2.Response) -> None:
        """Begins a pause when the answer says that none are left, be it a refusal or the last that was let through."""
        told = _kind_and_pause(response)
        if told is not None:
            kind, pause_s = told
            self._until[kind] = max(self._until.get(kind, 0.0), self._clock.monotonic() + pause_s)


def kind_of(url: httpx2.URL) -> str:
    """As the hub counts it."""
    if "/resolve/" in url.path or url.path.startswith("/api/resolve-cache/"):
        return "resolver"
    return "api" if url.path.startswith("/api/") else "pages"


def retry_after_s(response: httpx2.Response) -> float | None:
    """Seconds that the answer asks for, by `RateLimit: "api";r=0;t=90` or `Retry-After: 90`."""
    told = _kind_and_pause(response) if response.status_code == 429 else None
    return told[1] if told is not None else _retry_after(response)


def _kind_and_pause(response: httpx2.Response) -> tuple[str, float] | None:
    from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]  # re-exported without __all__

    limit = parse_ratelimit_headers(response.headers)
    if limit is not None and limit.remaining == 0:
        kind = _KINDS.get(limit.resource_type, kind_of(response.url))
        return kind, min(float(limit.reset_in_seconds), MAX_PAUSE_S)
    pause_s = _retry_after(response) if response.status_code == 429 else None
    return (kind_of(response.url), pause_s) if pause_s is not None else None


def _retry_after(response: httpx2.Response) -> float | None:
    told = response.headers.get("Retry-After", "")
    return min(float(told), MAX_PAUSE_S) if told.isascii() and told.isdigit() else None
