"""How a run ends."""

from __future__ import annotations


class End:
    """What `finish` tells. `exit_code` is None when no command ended by itself."""

    __slots__ = ("detail", "exit_code", "reason", "result")

    def __init__(self, result: str, reason: str, detail: str = "", exit_code: int | None = None) -> None:
        self.result = result
        self.reason = reason
        self.detail = detail
        self.exit_code = exit_code


class Ended(Exception):
    """The story stops here, with a result to be reported."""

    def __init__(self, end: End) -> None:
        super().__init__(end.detail)
        self.end = end


class Stopped(Exception):
    """Somebody or some clock wants the run to end; the command, if there is one, must be ended first."""

    def __init__(self, end: End, grace_s: float) -> None:
        super().__init__(end.detail)
        self.end = end
        self.grace_s = grace_s
        """Between TERM and KILL."""


class Unwanted(Exception):
    """The bot revoked the attempt: kill the command, report nothing."""
