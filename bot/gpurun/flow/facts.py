"""The facts of a run for its comment, check or terminal: one view of the database."""

from __future__ import annotations

from dataclasses import dataclass, replace
from string import whitespace

from gpurun.domain.approval import Approval
from gpurun.domain.errors import Bug
from gpurun.domain.run import Attempt, Run, RunState
from gpurun.domain.stream import StreamName
from gpurun.flow.asking import request_of
from gpurun.ports.store import Tx
from gpurun.report.facts import LOG_TAIL_BYTES, Queue, RunFacts
from gpurun.run.decide_run import FOR_A_SLOT, FOR_AN_OFFER, gives_up_at
from gpurun.telemetry.meter import attempt_cost
from gpurun.telemetry.summarise import summarise

METRICS_BYTES = 4 * 1024 * 1024
"""The last hours of metrics (a line a second); what a report's figures are drawn from."""


BLANK_BYTES = 16 * 1024 * 1024
"""Of white space at the end of a log that are looked through for what came before."""
WINDOW_BYTES = 1024 * 1024
_BLANK = b"\0" + whitespace.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Where a report points to. An empty one makes no link."""

    public_url: str = ""
    """Of this server, for run pages."""
    forge_url: str = ""
    hub_url: str = ""


def gather(tx: Tx, run_id: str, links: Links) -> RunFacts:
    """Raises Bug when there is no such run."""
    run = tx.run(run_id)
    if run is None:
        raise Bug(f"run {run_id} vanished")
    facts = brief(tx, run, links)
    last = facts.attempt
    log_size = tx.log_size(last.id) if last else 0
    return replace(
        facts,
        log_tail=_log_tail(tx, last, log_size),
        log_size=log_size,
        summary=summarise(_metrics(tx, last)) if last else None,
        artifacts=tx.artifacts(last.id) if last else (),
        request=request_of(run) if run.state is RunState.WAITING_APPROVAL else None,
        approval=_approval(tx, run),
    )


def brief(tx: Tx, run: Run, links: Links) -> RunFacts:
    """Without log, metrics, artifacts and approval: where it stands, and what it costs."""
    attempts, now = tx.attempts(run.id), tx.now()
    costs = (attempt_cost(attempt, now) for attempt in attempts)
    return RunFacts(
        run=run,
        now=now,
        attempts=attempts,
        costs=tuple(cost for cost in costs if cost is not None),
        queue=_queue(tx, run),
        pause=tx.pause_of(run.repo) if run.paused and run.state is not RunState.ENDED else None,
        run_url=run_page(run, links.public_url),
        forge_url=links.forge_url,
        hub_url=links.hub_url,
    )


def _queue(tx: Tx, run: Run) -> Queue | None:
    if run.state is not RunState.QUEUED or run.reason not in (FOR_A_SLOT, FOR_AN_OFFER):
        return None
    before = tx.waiting_before(run) if run.reason == FOR_A_SLOT else None
    return Queue(before=before, gives_up_at=gives_up_at(run))


def _approval(tx: Tx, run: Run) -> Approval | None:
    if not run.approval or run.pr is None:
        return None
    return next((one for one in tx.approvals(run.repo, run.pr) if one.id == run.approval), None)


def run_page(run: Run, public_url: str) -> str:
    """Its address with the read key; empty when this process serves no pages."""
    return f"{public_url}/runs/{run.id}?key={run.read_key}" if public_url else ""


def _log_tail(tx: Tx, attempt: Attempt | None, size: int) -> bytes:
    """The end of the log; when it is white space, the end of what was said before."""
    if attempt is None:
        return b""
    tail = tx.read_log(attempt.id, offset=max(0, size - LOG_TAIL_BYTES), max_bytes=LOG_TAIL_BYTES)
    if tail.rstrip(_BLANK):
        return tail
    end = size - len(tail)
    while end > max(0, size - BLANK_BYTES):
        start = max(0, end - WINDOW_BYTES)
        said = tx.read_log(attempt.id, offset=start, max_bytes=end - start).rstrip(_BLANK)
        if said:
            end = start + len(said)
            start = max(0, end - LOG_TAIL_BYTES)
            return tx.read_log(attempt.id, offset=start, max_bytes=end - start)
        end = start
    return tail


def _metrics(tx: Tx, attempt: Attempt) -> bytes:
    end = tx.stream_end(attempt.id, StreamName.METRICS).next
    start = max(0, end - METRICS_BYTES)
    return tx.read_stream(attempt.id, StreamName.METRICS, offset=start, max_bytes=METRICS_BYTES)
