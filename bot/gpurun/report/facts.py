"""What a report is made of: rows and streams of one run, read in one view."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpurun.domain.approval import Approval
from gpurun.domain.changed import Changed
from gpurun.domain.gate import Pause
from gpurun.domain.run import Attempt, Run
from gpurun.domain.stream import Artifact
from gpurun.domain.telemetry import Cost, Summary

LOG_TAIL_BYTES = 64 * 1024
"""How much of the end of the log a report can use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person is asked who is to allow a run."""

    command: str
    """The whole line that allows it."""
    who: str
    """Who may write it, in words."""
    changed: tuple[Changed, ...] = ()
    """What the head changes of the job, when the base has it."""
    is_new: bool = False
    """The base has no such job."""
    file_diff: tuple[str, ...] = ()
    """Of the file with the job, from the base to the head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What a queued run waits for."""

    before: int | None
    """Runs that were asked for earlier and wait for the same place; None when it does not wait for a place."""
    gives_up_at: datetime | None
    """None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Everything a comment or check shows. Pure in, pure out: `now` is a fact too."""

    run: Run
    now: datetime
    attempts: tuple[Attempt, ...] = ()
    """By number."""
    log_tail: bytes = b""
    """The last up to LOG_TAIL_BYTES of the last attempt's log, raw."""
    log_size: int = 0
    """Bytes of the whole log."""
    summary: Summary | None = None
    """Metrics of the last attempt."""
    costs: tuple[Cost, ...] = ()
    """One for each attempt that could cost anything; an unknown cost has none."""
    artifacts: tuple[Artifact, ...] = ()
    queue: Queue | None = None
    """While it is queued."""
    pause: Pause | None = None
    """Of its repository, while it has not ended."""
    request: Request | None = None
    """While it waits for somebody's word."""
    approval: Approval | None = None
    """Under which it goes on, or went on."""
    run_url: str = ""
    """The run page, with its read key; empty on the local forge."""
    forge_url: str = ""
    """`https://github.com`; empty: no links to commits."""
    hub_url: str = ""
    """`https://huggingface.co`; empty: no links to models."""

    @property
    def left_out(self) -> str:
        """Which artifacts were not kept; empty when all were."""
        return self.attempt.result.left_out if self.attempt and self.attempt.result else ""

    @property
    def attempt(self) -> Attempt | None:
        """The one that counts."""
        return self.attempts[-1] if self.attempts else None
