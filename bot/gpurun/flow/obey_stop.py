"""Commands that end runs, or keep them from starting: `cancel`, `stop-all`, `pause`, `resume`. Each function is a part
of one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpurun.command.grammar import render
from gpurun.domain.command import Cancel, PauseRepo, ResumeRepo, StopAll, Stopping
from gpurun.domain.errors import UserError
from gpurun.domain.gate import Pause
from gpurun.domain.run import Run
from gpurun.flow.acting import Acting
from gpurun.ports.store import Tx
from gpurun.report import reply


def obey(tx: Tx, acting: Acting, command: Stopping) -> list[str]:
    """What has to be said."""
    match command:
        case Cancel():
            return cancel(tx, acting, command)
        case StopAll():
            return stop_all(tx, acting, command)
        case PauseRepo():
            return pause(tx, acting, command)
        case ResumeRepo():
            return resume(tx, acting, command)


def cancel(tx: Tx, acting: Acting, command: Cancel) -> list[str]:
    """That run, the runs of that job, or all of the pull request."""
    live = tx.live_runs(acting.repo, acting.pr)
    by_id = [run for run in live if run.id == command.job]
    meant = by_id or [run for run in live if command.job in (None, run.job) and command.path in ("", run.folder)]
    folders = tuple(dict.fromkeys(run.folder for run in meant))
    if command.job and not command.path and len(folders) > 1:
        if "" not in folders:
            return [reply.which_folder([render(replace(command, path=folder)) for folder in folders])]
        meant = [run for run in meant if not run.folder]
    if not meant:
        return [reply.nothing_to_cancel(command.job, command.path)]
    return cancel_runs(tx, acting, meant, command)


def cancel_runs(tx: Tx, acting: Acting, runs: Sequence[Run], command: Cancel) -> list[str]:
    """Those of them that this person may cancel; why not, for the others."""
    said: list[str] = []
    for run in runs:
        denied = acting.denied(command, own_run=run.who == acting.seen.who)
        if denied:
            acting.note(tx, "cancel_denied", f"run:{run.id}")
            said.append(reply.error(denied))
            continue
        _stop(tx, acting, run)
    tx.raise_gate(acting.repo, acting.pr)
    return list(dict.fromkeys(said))


def stop_all(tx: Tx, acting: Acting, command: StopAll) -> list[str]:
    """Every live run of the repository."""
    denied = acting.denied(command)
    if denied:
        return _refused(tx, acting, "stop_all_denied", denied)
    live = tx.live_runs_of_repo(acting.repo)
    stopped = [run for run in live if _stop(tx, acting, run)]
    acting.note(tx, "all_stopped", runs=len(stopped))
    tx.raise_gates(acting.repo)
    return [reply.all_stopped(len(stopped), before=len(live) - len(stopped))]


def pause(tx: Tx, acting: Acting, command: PauseRepo) -> list[str]:
    """Nothing starts in the repository; what has no instance yet waits."""
    denied = acting.denied(command)
    if denied:
        return _refused(tx, acting, "pause_denied", denied)
    row = Pause(id=acting.chance.ulid(), repo=acting.repo, reason=command.reason, by=acting.seen.who, at=tx.now())
    tx.pause(row)
    held = tx.hold_runs(acting.repo)
    acting.note(tx, "paused", pause=row.id, reason=row.reason)
    _show(tx, acting, held)
    return [reply.pause_begun(row, len(held))]


def resume(tx: Tx, acting: Acting, command: ResumeRepo) -> list[str]:
    """What waited goes on."""
    denied = acting.denied(command)
    if denied:
        return _refused(tx, acting, "resume_denied", denied)
    held = tx.pause_of(acting.repo)
    if held is None or not tx.end_pause(held.id, acting.seen.who):
        return [reply.not_paused()]
    freed = tx.free_runs(acting.repo)
    acting.note(tx, "resumed", pause=held.id)
    _show(tx, acting, freed)
    return [reply.pause_ended(held, len(freed))]


def _show(tx: Tx, acting: Acting, runs: Sequence[str]) -> None:
    for run_id in runs:
        tx.raise_rev(run_id, final=False, urgent=True)
    tx.raise_gates(acting.repo)


def _stop(tx: Tx, acting: Acting, run: Run) -> bool:
    if not tx.ask_cancel(run.id, acting.seen.who):
        return False
    acting.note(tx, "run_cancel_asked", f"run:{run.id}")
    return True


def _refused(tx: Tx, acting: Acting, kind: str, denied: UserError) -> list[str]:
    acting.note(tx, kind)
    return [reply.error(denied)]
