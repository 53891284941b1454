"""Pull request pages to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

if TYPE_CHECKING:
    from tests.fakes.github.fake import FakeGitHub


def routes(github: FakeGitHub) -> list[Route]:
    """One page."""
    return []
