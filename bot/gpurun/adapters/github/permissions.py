"""What the App needs at GitHub, and for which call. `app.yml` asks for exactly this."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Level = Literal["read", "write"]

PERMISSIONS: Mapping[str, Level] = MappingProxyType(
    {
        "metadata": "read",  # permission()
        "contents": "read",  # read_file(), read_files(), git_source()
        "issues": "read",  # the issue_comment event
        # pull_request(), changed_files(), comment(), create_comment(), update_comment(), react()
        "pull_requests": "write",
        # create_check(), update_check(), find_check(), read_check(); the events check_run and check_suite
        "checks": "write",
    }
)
"""Permission to level. Comments and reactions on pull requests need no write on issues."""

SOURCE_PERMISSIONS: Mapping[str, Level] = MappingProxyType({"contents": "read"})
"""All that the token of `git_source()` can do, and in one repository only."""

EVENTS = frozenset({"issue_comment", "pull_request", "check_run", "check_suite"})
"""Installation events come without being asked for."""
