"""`gpurun run`: a job of this checkout, by the same engine as on the server."""

from __future__ import annotations

import getpass
import signal
from enum import StrEnum
from pathlib import Path

import anyio
import click

from gpurun.adapters.local import LocalForge
from gpurun.adapters.local.checkout import LocalState
from gpurun.cli.logs import log_trouble_only
from gpurun.cli.screen import JsonScreen, PeopleScreen, Screen
from gpurun.cli.serve import first_of_ours
from gpurun.cli.validate import show_config_error
from gpurun.command.parse import suggest
from gpurun.domain.errors import ConfigError, GpurunError, UserError
from gpurun.domain.ids import CommitSha, JobName
from gpurun.domain.run import AttemptState, RunState, Verdict
from gpurun.domain.stream import StreamName
from gpurun.flow.facts import gather
from gpurun.flow.request import LocalRequest, request_cancel, request_run
from gpurun.plan.load import job_names, load
from gpurun.ports.store import Tx
from gpurun.report.facts import RunFacts
from gpurun.settings import Settings
from gpurun.wiring import House, open_local

CONFIG_PATH = ".gpurun.yml"
CONFIG_MAX_BYTES = 64 * 1024
LOOK_EVERY_S = 0.1
"""How late a line of the log is shown at most."""
READ_BYTES = 1024 * 1024

EXIT_CODES = {
    Verdict.PASSED: 0,
    Verdict.FAILED: 1,
    Verdict.TIMEOUT: 1,
    Verdict.REFUSED: 2,
    Verdict.LOST: 3,
    Verdict.CANCELLED: 130,
}


class Output(StrEnum):
    """Who reads it."""

    PEOPLE = "people"
    JSON = "json"


def run_job(job: str, checkout: Path, output: Output) -> int:
    """The exit code of the run."""
    log_trouble_only()
    screen: Screen = JsonScreen() if output is Output.JSON else PeopleScreen()
    try:
        return anyio.run(_run, job, checkout, screen, backend_options={"use_uvloop": True})
    except GpurunError as error:
        return _refused(error, checkout)
    except BaseExceptionGroup as group:
        ours = first_of_ours(group)
        if ours is None:
            raise
        return _refused(ours, checkout)


def _refused(error: GpurunError, checkout: Path) -> int:
    if isinstance(error, ConfigError):
        file = checkout / CONFIG_PATH
        show_config_error(error, file.read_bytes() if file.is_file() else None, CONFIG_PATH)
        return 2
    click.echo(f"gpurun run: {error}", err=True)
    if isinstance(error, UserError) and error.hint:
        click.echo(error.hint, err=True)
    return 2 if isinstance(error, UserError) else 3


async def _run(job: str, checkout: Path, screen: Screen) -> int:
    forge = LocalForge(checkout)
    state = await forge.checkout_state()
    sha = await forge.snapshot() if state.dirty else state.sha
    request = await local_request(forge, state, sha, job)
    screen.starts(job, state, sha)
    async with open_local(Settings(), forge) as house:
        run_id = await request_run(house.store, house.chance, request)
        facts = await carry_out(house, run_id, screen)
    screen.ends(facts)
    return EXIT_CODES[facts.run.verdict or Verdict.LOST]


async def local_request(forge: LocalForge, state: LocalState, sha: CommitSha, job: str) -> LocalRequest:
    """Raises UserError for a job that the file does not have."""
    raw = await forge.read_file(state.repo, sha, CONFIG_PATH, max_bytes=CONFIG_MAX_BYTES)
    jobs = job_names(load(raw))
    if job not in jobs:
        meant = suggest(job, jobs)
        guess = f" Did you mean {meant!r}?" if meant else ""
        raise UserError(f"There is no job {job!r} in {CONFIG_PATH}.{guess}", hint=f"Jobs: {', '.join(jobs)}.")
    assert raw is not None  # `load` refuses a file that is not there
    return LocalRequest(
        repo=state.repo,
        job=JobName(job),
        sha=sha,
        who=getpass.getuser(),
        config_text=raw.decode("utf-8", "surrogateescape"),
    )


async def carry_out(house: House, run_id: str, screen: Screen) -> RunFacts:
    """Runs the engine until the run has ended and nothing of it is left."""
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.live, stop)
        tasks.start_soon(_cancel_on_signal, house, run_id, screen)
        facts = await _follow(house, run_id, screen)
        stop.set()
        tasks.cancel_scope.cancel()
    return facts


async def _follow(house: House, run_id: str, screen: Screen) -> RunFacts:
    shown = 0
    while True:
        facts, piece = await house.store.read(lambda tx, at=shown: _view(tx, run_id, at, house))  # type: ignore[misc]
        shown += len(piece)
        screen.shows(facts, piece)
        if not piece and _is_over(facts):
            return facts
        if not piece:
            await house.store.committed(timeout_s=LOOK_EVERY_S)


def _view(tx: Tx, run_id: str, offset: int, house: House) -> tuple[RunFacts, bytes]:
    facts = gather(tx, run_id, house.links)
    if facts.attempt is None:
        return facts, b""
    return facts, tx.read_stream(facts.attempt.id, StreamName.LOG, offset=offset, max_bytes=READ_BYTES)


def _is_over(facts: RunFacts) -> bool:
    left = [a for a in facts.attempts if a.state not in (AttemptState.GONE, AttemptState.VOID)]
    return facts.run.state is RunState.ENDED and not left


async def _cancel_on_signal(house: House, run_id: str, screen: Screen) -> None:
    """Ctrl-C asks the engine to cancel; the container is gone before the command returns."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            screen.cancels()
            await request_cancel(house.store, run_id, getpass.getuser())
