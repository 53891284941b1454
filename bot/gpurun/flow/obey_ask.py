"""Commands that only ask: `help`, `list`, `status`, `logs`.

What they show is read in the transaction that takes the command, not when the answer is sent: it is the answer to this
question, at this moment, and a reply that is sent again after an outage says the same. Anyone may ask, so they ask the
forge for nothing but what help needs.
"""

from __future__ import annotations

from gpurun.command.grammar import help_text, render
from gpurun.domain.command import Help, ListJobs, Logs, RunJob, Status
from gpurun.domain.run import Run
from gpurun.flow.acting import Acting
from gpurun.flow.facts import brief, gather
from gpurun.ports.store import Tx
from gpurun.report import reply
from gpurun.report.overview import JobLine, jobs_text, log_text, status_text


def answer(tx: Tx, acting: Acting, command: Help | ListJobs | Status) -> str:
    """Markdown."""
    match command:
        case Help():
            return help_of(acting)
        case ListJobs():
            return jobs(tx, acting)
        case Status():
            return status(tx, acting)


def help_of(acting: Acting) -> str:
    """The commands, and the jobs of the files that were read."""
    top, search = acting.seen.files.get(""), acting.seen.search
    folders = {file.folder: file.jobs for file in search.files if file.jobs} if search else {}
    return help_text(top.jobs if top else (), folders)


def jobs(tx: Tx, acting: Acting) -> str:
    """The jobs of those files, with what their last runs here came to."""
    top, search = acting.seen.files.get(""), acting.seen.search
    files = [*([top] if top else []), *(search.files if search else ())]
    last = {(run.folder, str(run.job)): run for run in tx.newest_runs(acting.repo, acting.pr)}
    needed = {
        (one.folder, str(one.job))
        for gate in tx.gates(acting.repo, acting.pr)
        if gate.sha == acting.seen.pull_request.head_sha and gate.look
        for one in gate.look.needed
    }
    lines = []
    for file in files:
        for name in file.jobs:
            place, job = (file.folder, name), file.rules.get(name)
            run = last.get(place)
            lines.append(
                JobLine(
                    command=render(RunJob(name, file.folder)),
                    gpu=job.resources.gpu if job else None,
                    required=place in needed,
                    last=brief(tx, run, acting.links) if run else None,
                )
            )
    return jobs_text(lines, has_fault=any(file.text is not None and not file.jobs for file in files))


def status(tx: Tx, acting: Acting) -> str:
    """Every live run of the pull request: where it is, since when, what it costs, what it waits for."""
    live = [brief(tx, run, acting.links) for run in tx.live_runs(acting.repo, acting.pr)]
    return status_text(live, pause=tx.pause_of(acting.repo), now=tx.now())


def end_of_log(tx: Tx, acting: Acting, command: Logs) -> tuple[str, str]:
    """The end of the log of one run, and the id of the run, whose secrets have to be hidden; empty when none."""
    run = _run_meant(tx, acting, command)
    if run is None:
        return reply.no_run(command.job), ""
    return log_text(gather(tx, run.id, acting.links)), run.id


def _run_meant(tx: Tx, acting: Acting, command: Logs) -> Run | None:
    by_id = tx.run(command.job) if command.job else None
    if by_id is not None and by_id.repo.id == acting.repo.id:
        return by_id
    every = {run.id: run for run in (*tx.newest_runs(acting.repo, acting.pr), *tx.live_runs(acting.repo, acting.pr))}
    meant = [
        run
        for run in sorted(every.values(), key=lambda run: (run.created_at, run.id))
        if command.job in (None, run.job) and command.path in ("", run.folder)
    ]
    at_top = [run for run in meant if not run.folder] if command.job else []
    return next(reversed(at_top or meant), None)
