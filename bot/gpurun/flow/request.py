"""A request without a comment: what `gpurun run` asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import CommitSha, JobName
from gpurun.domain.run import AuditEntry, Result, ResultKind, Run
from gpurun.flow import edges, failpoints
from gpurun.ports.clock import Chance
from gpurun.ports.store import Store, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRequest:
    """One job at one commit of a checkout."""

    repo: RepoRef
    job: JobName
    sha: CommitSha
    who: str
    config_text: str | None
    folder: str = ""
    """Of the file, from the top of the repository."""


async def request_run(store: Store, chance: Chance, request: LocalRequest) -> str:
    """The id of the new run, which is due at once."""
    run_id, read_key = chance.ulid(), chance.token(16)

    def add(tx: Tx) -> None:
        now = tx.now()
        tx.add_run(
            Run(
                id=run_id,
                repo=request.repo,
                pr=None,
                job=request.job,
                sha=request.sha,
                who=request.who,
                why="cli",
                created_at=now,
                read_key=read_key,
                config_text=request.config_text,
                folder=request.folder,
                state_since=now,
                due_at=now,
            )
        )
        tx.audit(
            AuditEntry(at=now, actor="cli", kind="run_created", subject=f"run:{run_id}", data={"sha": request.sha})
        )

    await edges.commit(store, failpoints.REQUEST_RUN, add)
    return run_id


async def request_cancel(store: Store, run_id: str, who: str) -> None:
    """Silent when the run has ended."""
    await edges.commit(store, failpoints.REQUEST_CANCEL, lambda tx: _ask_cancel(tx, run_id, who))


async def request_end(store: Store, run_id: str, who: str) -> None:
    """Like a cancel, but the job gets no time to end by itself: its instance is destroyed at once."""

    def end(tx: Tx) -> None:
        _ask_cancel(tx, run_id, who)
        result = Result(kind=ResultKind.CANCELLED, reason="asked", detail=f"Cancelled by {who}.")
        for attempt in tx.attempts(run_id):
            if tx.set_result(attempt.id, result):
                tx.audit(_entry(tx, "attempt_result_set", f"attempt:{attempt.id}", {"result": result.kind.value}))

    await edges.commit(store, failpoints.REQUEST_END, end)


def _ask_cancel(tx: Tx, run_id: str, who: str) -> None:
    if tx.ask_cancel(run_id, who):
        tx.audit(_entry(tx, "run_cancel_asked", f"run:{run_id}", {"by": who}))


def _entry(tx: Tx, kind: str, subject: str, data: Mapping[str, str]) -> AuditEntry:
    return AuditEntry(at=tx.now(), actor="cli", kind=kind, subject=subject, data=data)
