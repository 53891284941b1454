"""What the bot asked of GitHub that it may not ask, also when it never looked at the answer.

One list for all the GitHubs of a test run; `tests/conftest.py` looks at it after each test. Importing this is cheap:
the contract itself is read with the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from tests.fakes.github.contract import Asked, Told

BOT = "gpurun/"
"""How the bot's `User-Agent` begins; a test that speaks to the fake by hand may say what it likes."""

_violations: list[str] = []


def asked(one: Asked) -> None:
    """By whoever it was; only the bot's requests count."""
    if one.user_agent.startswith(BOT):
        from tests.fakes.github.contract import contract

        _violations.extend(f"the bot: {one}: {what}" for what in contract().wrong_in(one))


def answered(one: Asked, told: Told) -> None:
    """What the fake said of its own accord (trouble is not)."""
    if one.user_agent.startswith(BOT):
        from tests.fakes.github.contract import contract

        _violations.extend(f"the fake: {told.status} to {one}: {what}" for what in contract().wrong_with(told, one))


def take() -> list[str]:
    """Every violation since the last call."""
    taken = list(dict.fromkeys(_violations))
    _violations.clear()
    return taken


def assert_clean() -> None:
    """Raises AssertionError that names each violation since the last look."""
    lines = take()
    assert not lines, "not what GitHub's OpenAPI document says:\n" + "\n".join(lines)


class Checked(httpx.AsyncBaseTransport):
    """Around the transport of a forge that speaks to no `FakeGitHub`; its requests have to keep to the contract too."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        from tests.fakes.github.contract import asked_by

        await request.aread()
        asked(asked_by(request))
        return await self._inner.handle_async_request(request)
