"""What GitHub itself has sent to the App's webhook.

Source: https://docs.github.com/en/rest/apps/webhooks#list-deliveries-for-an-app-webhook, read 2026-12-02: newest first,
by the App's own JSON web token, a redelivery under the GUID of the delivery that it repeats.
"""

from __future__ import annotations

from datetime import datetime

from gpurun.adapters.github import answers, client
from gpurun.domain.errors import ForgeRefused
from gpurun.domain.forge import Sent

PATH = "/app/hook/deliveries"
PER_PAGE = 100
PAGES_MAX = 20
"""Two thousand deliveries. Whoever asks does so within minutes of the delivery."""


async def find(calls: client.Calls, guid: str, *, since: datetime) -> Sent | None:
    """The first that was sent under `guid` at or after `since`; a redelivery only where that one is not on the list."""
    found: answers.HookItem | None = None
    params: dict[str, client.Param] = {"per_page": PER_PAGE}
    for _ in range(PAGES_MAX):
        items, cursor = await calls.page(PATH, list[answers.HookItem], params)
        recent = [item for item in items if item.delivered_at >= since]
        found = next((item for item in reversed(recent) if item.guid == guid), found)
        if len(recent) < len(items) or not cursor or (found is not None and not found.redelivery):
            return None if found is None else await _whole(calls, found)
        params["cursor"] = cursor
    raise ForgeRefused(f"GitHub has sent more since {since:%H:%M} than can be looked through.", status=422)


async def _whole(calls: client.Calls, item: answers.HookItem) -> Sent:
    sent = await calls.get(f"{PATH}/{item.id}", answers.HookDelivery)
    return Sent(event=sent.event, body=bytes(sent.request.payload), at=sent.delivered_at, again=sent.redelivery)
