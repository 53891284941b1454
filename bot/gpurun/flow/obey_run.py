"""Commands that start runs: `run` and `retry`. Each function is a part of one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gpurun.command.grammar import render
from gpurun.command.parse import suggest
from gpurun.domain.command import Retry, RunJob, Starting
from gpurun.domain.config import PolicyKeys
from gpurun.domain.errors import ConfigError, TooWide
from gpurun.domain.ids import JobName
from gpurun.domain.narrow import Narrow, asked_alike
from gpurun.domain.run import Run, Verdict
from gpurun.flow.acting import Acting, show_run
from gpurun.flow.facts import run_page
from gpurun.flow.look import JobFile, Search
from gpurun.plan.load import policy_of
from gpurun.plan.narrow import narrowed
from gpurun.plan.policy import providers_of
from gpurun.ports.store import Tx
from gpurun.report import reply

WORTH_ANOTHER_TRY = frozenset({Verdict.FAILED, Verdict.TIMEOUT, Verdict.LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A job that is to run at the head."""

    job: JobName
    folder: str
    config_text: str | None
    narrow: Narrow
    """`of` says how many runs of it."""

    @property
    def place(self) -> tuple[str, str]:
        """The same for all runs of one job of one file."""
        return self.folder, self.job


def obey(tx: Tx, acting: Acting, command: Starting) -> list[str]:
    """What has to be said; the run's own comment says the rest."""
    own_run = isinstance(command, Retry) and _is_approved_author(tx, acting)
    denied = acting.denied(command, own_run=own_run) or acting.seen.policy_error
    if denied:
        acting.note(tx, "run_denied")
        return [reply.error(denied)]
    return run(tx, acting, command) if isinstance(command, RunJob) else retry(tx, acting, command)


def run(tx: Tx, acting: Acting, command: RunJob) -> list[str]:
    """For somebody who may: starts the job, or says why not."""
    seen = acting.seen
    if not seen.pull_request.head_sha.startswith(command.sha):
        return [reply.not_the_head(command.sha, seen.pull_request.head_sha)]
    file = _file_of(acting, command)
    if isinstance(file, str):
        return [file]
    if command.job in file.not_by_comment:
        return [reply.not_by_comment(command.job, file.folder)]
    narrow = Narrow(gpu=command.gpu, provider=command.provider, max_usd_micro=command.max_usd_micro, of=command.repeat)
    fault = _beyond(acting, file, command.job, narrow)
    if fault:
        return [fault]
    wanted = Wanted(job=JobName(command.job), folder=file.folder, config_text=file.text, narrow=narrow)
    return start(tx, acting, wanted)


def retry(tx: Tx, acting: Acting, command: Retry) -> list[str]:
    """For somebody who may: the newest run of each job at the head, or of the one that is meant, once more as it was
    asked for.
    """
    newest = [
        runs
        for runs in newest_at_head(tx, acting)
        if command.job in (None, runs[0].job) and (not command.path or command.path == runs[0].folder)
    ]
    if command.job and not command.path and len(newest) > 1:
        newest = [runs for runs in newest if not runs[0].folder] or newest
    if command.job and len(newest) > 1:
        return [reply.which_folder([render(replace(command, path=runs[0].folder)) for runs in newest])]
    if not newest:
        return [reply.nothing_to_retry(command.job, acting.seen.pull_request.head_sha)]
    again = [runs for runs in newest if _is_worth_it(runs, command)]
    if not again:
        return [reply.none_worth_a_retry([(one[-1], _is_live(one)) for one in newest])]
    return [told for runs in again for told in start(tx, acting, wanted_again(runs[-1]))]


def start(tx: Tx, acting: Acting, wanted: Wanted) -> list[str]:
    """New runs at the head; or the live ones that are the same, which are joined and named."""
    pause = tx.pause_of(acting.repo)
    if pause is not None:
        acting.note(tx, "run_paused", job=wanted.job)
        return [reply.paused(pause)]
    live = [one for one in tx.live_runs(acting.repo, acting.pr) if _is_the_same(one, wanted, acting)]
    if live:
        for one in live:
            tx.also_asked(one.id, acting.seen.who)
            tx.raise_rev(one.id, final=False, urgent=False)
            acting.note(tx, "run_joined", f"run:{one.id}")
        return [reply.joined(live[0], run_page(live[0], acting.links.public_url))]
    batch = acting.chance.ulid() if wanted.narrow.of > 1 else ""
    for number in range(1, wanted.narrow.of + 1):
        _add(tx, acting, wanted, replace(wanted.narrow, number=number, batch=batch))
    tx.raise_gate(acting.repo, acting.pr)
    return []


def wanted_again(run: Run) -> Wanted:
    """The same as that run, with all of its `repeat`."""
    return Wanted(job=run.job, folder=run.folder, config_text=run.config_text, narrow=run.narrow)


def newest_at_head(tx: Tx, acting: Acting) -> list[tuple[Run, ...]]:
    """Of each job that ran at the head."""
    return newest_of_each(tx.runs_of_pull(acting.repo, acting.pr, acting.seen.pull_request.head_sha))


def newest_of_each(runs: Iterable[Run]) -> list[tuple[Run, ...]]:
    """Of each job: its newest run, or all runs of its newest `repeat`. `runs`: of one commit, oldest first."""
    found: dict[tuple[str, str], list[Run]] = {}
    for one in runs:
        own = found.setdefault((one.folder, one.job), [])
        if own and (not one.narrow.batch or own[-1].narrow.batch != one.narrow.batch):
            own.clear()
        own.append(one)
    return [tuple(own) for own in found.values()]


def _is_worth_it(runs: Sequence[Run], command: Retry) -> bool:
    if _is_live(runs):
        return False
    return command.every or any(one.verdict in WORTH_ANOTHER_TRY for one in runs)


def _is_live(runs: Sequence[Run]) -> bool:
    return any(one.verdict is None for one in runs)


def _is_approved_author(tx: Tx, acting: Acting) -> bool:
    """The pull request is theirs, and somebody has allowed exactly its head."""
    pull_request = acting.seen.pull_request
    if acting.seen.who.lower() != pull_request.author.lower():
        return False
    approval = tx.hold_approval(acting.repo, acting.pr)
    return approval is not None and approval.sha == pull_request.head_sha


def _is_the_same(run: Run, wanted: Wanted, acting: Acting) -> bool:
    """Nobody joins a run that was told to end: it would never answer them."""
    same = (run.folder, run.job) == wanted.place and run.sha == acting.seen.pull_request.head_sha
    return same and run.cancel_at is None and asked_alike(run.narrow, wanted.narrow)


def _beyond(acting: Acting, file: JobFile, name: str, narrow: Narrow) -> str:
    """Why the arguments ask for more than the job or the policy allows; empty when they do not.

    Planning asks again, and so refuses what a file with a fault hides here.
    """
    job = file.rules.get(name)
    if job is None:
        return ""
    try:
        less = narrowed(job, narrow)
    except TooWide as fault:
        return reply.error(fault)
    if narrow.provider and not providers_of(less, _policy(acting.seen.policy_text)):
        return reply.provider_not_allowed(narrow.provider, _policy(acting.seen.policy_text).providers or ())
    return ""


@lru_cache(maxsize=64)
def _policy(text: str | None) -> PolicyKeys:
    try:
        return policy_of(text)
    except ConfigError:  # the run says so
        return PolicyKeys()


def _file_of(acting: Acting, command: RunJob) -> JobFile | str:
    """The file whose job is meant, or what to say when there is none, or several."""
    file = acting.seen.files[command.path]
    if file.error is not None:
        return reply.error(file.error)
    if file.text is None and command.path:
        return reply.no_file(command.path)
    if file.text is not None and (command.job in file.jobs or not file.jobs):
        return file
    if command.path or acting.seen.search is None:
        return _no_job(command, file, Search())
    return _found(command, file, acting.seen.search)


def _found(command: RunJob, top: JobFile, search: Search) -> JobFile | str:
    having = [file for file in search.files if command.job in file.jobs]
    if len(having) == 1:
        return having[0]
    if having:
        choices = [render(replace(command, path=file.folder)) for file in having]
        return reply.which_folder(choices, all_seen=search.all_seen)
    if top.text is None and not search.files:
        return top  # the run's own comment says how to begin
    return _no_job(command, top, search)


def _no_job(command: RunJob, file: JobFile, search: Search) -> str:
    files = [file, *search.files] if file.text is not None else list(search.files)
    meant = suggest(command.job, [job for one in files for job in one.jobs])
    where = next((one.folder for one in files if meant in one.jobs), "")
    places = [reply.Place(folder=one.folder, jobs=one.jobs) for one in files]
    is_job = any(meant in one.jobs for one in files)
    typed = render(replace(command, job=meant, path=where) if is_job else RunJob(meant)) if meant else None
    return reply.unknown_job(command.job, places, typed, all_seen=search.all_seen)


def _add(tx: Tx, acting: Acting, wanted: Wanted, narrow: Narrow) -> None:
    now, seen = tx.now(), acting.seen
    row = Run(
        id=acting.chance.ulid(),
        repo=acting.repo,
        pr=acting.pr,
        job=wanted.job,
        sha=seen.pull_request.head_sha,
        base_sha=seen.pull_request.base_sha,
        base_ref=seen.pull_request.base_ref,
        untrusted=seen.untrusted,
        who=seen.who,
        why="comment" if seen.comment_id else "button",
        comment_id=seen.comment_id or None,
        created_at=now,
        read_key=acting.chance.token(16),
        config_text=wanted.config_text,
        folder=wanted.folder,
        policy_text=seen.policy_text,
        narrow=narrow,
        state_since=now,
        due_at=now,
    )
    tx.add_run(row)
    show_run(tx, acting.chance, row)
    acting.note(tx, "run_created", f"run:{row.id}")
