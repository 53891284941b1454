"""`gpurun run`: a job of this checkout, by the same engine as on the server."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import anyio

from gpurun.adapters.local import LocalForge
from gpurun.adapters.local.checkout import LocalState
from gpurun.cli.an_engine import get_an_engine
from gpurun.cli.artifacts import place_artifacts, usable_folder
from gpurun.cli.envfile import given_secrets, ignored_note
from gpurun.cli.environment import read_settings
from gpurun.cli.follow import carry_out
from gpurun.cli.interrupts import Interrupted, Interrupts, listening
from gpurun.cli.leftovers import clear_leftovers, mark_ended
from gpurun.cli.logs import keep_out_of_log, log_trouble_only
from gpurun.cli.output import say
from gpurun.cli.screen import JsonScreen, PeopleScreen, Screen
from gpurun.cli.the_file import named_folder
from gpurun.cli.the_job import BrokenFile, config_of, job_of
from gpurun.cli.tracked_dotenv import dotenv_note
from gpurun.cli.trouble import first_of_ours, tell
from gpurun.cli.validate import show_config_error
from gpurun.cli.who import who
from gpurun.domain.errors import GpurunError, NoGit, ProviderRefused, ProviderUnavailable, UserError
from gpurun.domain.folder import config_path
from gpurun.domain.ids import CommitSha
from gpurun.domain.plan import Resources
from gpurun.domain.repository import DOTENV
from gpurun.domain.run import Verdict
from gpurun.flow.engine_run import ASK_FOR_LESS
from gpurun.flow.request import LocalRequest, request_run
from gpurun.plan.load import load
from gpurun.plan.source import MAX_BYTES as CONFIG_MAX_BYTES
from gpurun.ports.provider import SaysWhyNot
from gpurun.report.terminal import Places, no_run_result, unwritten_artifacts
from gpurun.settings import Settings
from gpurun.wiring import House, open_local

LEFTOVERS_LIMIT_S = 5.0
"""How long clearing up after earlier runs may outlast this one; the next `gpurun run` goes on with it."""
NOTHING_RAN = "Cancelled before anything ran."

EXIT_CODES = {
    Verdict.PASSED: 0,
    Verdict.FAILED: 1,
    Verdict.TIMEOUT: 1,
    Verdict.REFUSED: 2,
    Verdict.LOST: 3,
    Verdict.CANCELLED: 130,
}

UNWRITTEN = 4
"""Passed, and an artifact could not be written where it was wanted."""


class Output(StrEnum):
    """Who reads it."""

    PEOPLE = "people"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was typed."""

    job: str
    checkout: Path
    artifacts_dir: Path | None = None
    """None: in the state folder of the run."""
    env_file: Path | None = None
    """None: `.env` at the top of the checkout, when it is there."""
    path: str | None = None
    """The folder of the file, from the top of the checkout; None: the nearest one above `checkout`."""


def run_job(wish: Wish, output: Output) -> int:
    """The exit code of the run, or of why there was none."""
    log_trouble_only()
    screen: Screen = JsonScreen() if output is Output.JSON else PeopleScreen()
    try:
        # not uvloop: it starts git in 10 ms instead of 3, and importing it takes 50
        return anyio.run(_run, wish, screen)
    except (GpurunError, BaseExceptionGroup) as error:
        ours = first_of_ours(error)
        if ours is None:
            raise
    verdict, reason = _without_a_run(ours)
    _tell(ours)
    hint = ours.hint if isinstance(ours, UserError) else ""
    screen.fails(no_run_result(wish.job, verdict, reason=reason, detail=f"{ours} {hint}".strip()))
    return EXIT_CODES[verdict]


def _without_a_run(error: GpurunError) -> tuple[Verdict, str]:
    """The verdict, and the reason in a word, of a command that came to no verdict of a run."""
    match error:
        case Interrupted():
            return Verdict.CANCELLED, "asked"
        case NoEngine():
            return Verdict.LOST, "no_engine"
        case NoRoom():
            return Verdict.REFUSED, "hardware"
        case BrokenFile():
            return Verdict.REFUSED, "config"
        case UserError() | NoGit():
            return Verdict.REFUSED, "usage"
        case _:
            return Verdict.LOST, "trouble"


def _tell(error: GpurunError) -> None:
    if isinstance(error, BrokenFile):
        show_config_error(error.fault, error.text, error.path)
    else:
        tell("gpurun run", error)


async def _run(wish: Wish, screen: Screen) -> int:
    async with listening() as interrupts:
        settings = read_settings()
        async with anyio.create_task_group() as beside:
            beside.start_soon(_clear_leftovers, settings, screen)
            code = await _request_and_run(wish, settings, screen, interrupts)
            beside.cancel_scope.deadline = anyio.current_time() + LEFTOVERS_LIMIT_S
        return code


async def _clear_leftovers(settings: Settings, screen: Screen) -> None:
    ended = await clear_leftovers(settings, who())
    if ended:
        screen.notes(f"Cleared up after {ended} earlier run{'s' if ended > 1 else ''} that had been killed.")


async def _request_and_run(wish: Wish, settings: Settings, screen: Screen, interrupts: Interrupts) -> int:
    if wish.artifacts_dir is not None:
        usable_folder(wish.artifacts_dir)
    forge = LocalForge(wish.checkout, private=wish.env_file)
    async with interrupts.ending_at(1, NOTHING_RAN):
        state = await forge.checkout_state()
        sha = await forge.snapshot() if state.dirty else state.sha
        request = await local_request(forge, state, sha, wish)
        about_dotenv = await dotenv_note(forge, state, sha)
    job = load(request.config_text or "").jobs[request.job]
    env_file = wish.env_file or state.top / DOTENV
    given = given_secrets(
        wish.job,
        job.secrets,
        env_file,
        must_exist=wish.env_file is not None,
        optional=() if job.registry is None else (job.registry.password,),
    )
    screen.starts(wish.job, state, sha)
    if request.folder:
        screen.notes(f"The job is that of {config_path(request.folder)}.")
    for note in filter(None, (ignored_note(given, wish.job), about_dotenv)):
        screen.notes(note)
    async with open_local(settings, forge, given=given.values) as house:
        keep_out_of_log(house.hide)
        async with interrupts.ending_at(1, NOTHING_RAN):
            await require_room(house, job.needs())
            run_id = await request_run(house.store, house.chance, request)
        facts = await carry_out(house, run_id, screen, interrupts=interrupts)
        own = house.state / "artifacts"
        places = await place_artifacts(house.http.blobs, facts.artifacts, wish.artifacts_dir or own, instead=own)
        mark_ended(house.state)
    screen.ends(facts, places)
    if places.unwritten:
        sys.stdout.flush()
        say(f"gpurun run: {unwritten_artifacts(places, str(house.state))}", err=True)
    return exit_code(facts.run.verdict or Verdict.LOST, places)


def exit_code(verdict: Verdict, places: Places) -> int:
    """That of the verdict; a pass whose artifacts are not where they were wanted has one of its own."""
    code = EXIT_CODES[verdict]
    return code or (UNWRITTEN if places.unwritten else 0)


async def local_request(forge: LocalForge, state: LocalState, sha: CommitSha, wish: Wish) -> LocalRequest:
    """Raises UserError for a job that the file does not have, BrokenFile for a file that has a fault."""
    folder, raw = await _file_of(forge, state, sha, wish)
    path = config_path(folder)
    name = job_of(config_of(raw, path, start=wish.checkout), wish.job, path)
    assert raw is not None  # `config_of` refuses a file that is not there
    return LocalRequest(
        repo=state.repo,
        job=name,
        sha=sha,
        who=who(),
        config_text=raw.decode("utf-8", "surrogateescape"),
        folder=folder,
    )


async def _file_of(forge: LocalForge, state: LocalState, sha: CommitSha, wish: Wish) -> tuple[str, bytes | None]:
    """The folder of the file that is meant, and the file; that of the top when there is none."""
    if wish.path is not None:
        folder = named_folder(wish.path)
        raw = await forge.read_file(state.repo, sha, config_path(folder), max_bytes=CONFIG_MAX_BYTES)
        if raw is None and folder:
            raise UserError(f"There is no {config_path(folder)} in {state.top}.", hint="`--path` starts at that top.")
        return folder, raw
    for folder in _folders_up(state.top, wish.checkout):
        raw = await forge.read_file(state.repo, sha, config_path(folder), max_bytes=CONFIG_MAX_BYTES)
        if raw is not None:
            return folder, raw
    return "", None


def _folders_up(top: Path, start: Path) -> list[str]:
    """From `start` to the top of the checkout, which is the empty name."""
    here, top = start.resolve(), top.resolve()
    inside = here.relative_to(top) if here.is_relative_to(top) else Path()
    return [*(folder.as_posix() for folder in (inside, *inside.parents) if folder != Path()), ""]


class NoEngine(UserError):
    """There is nothing to run containers with."""


class NoRoom(UserError):
    """What runs containers will never have what the job needs."""


async def require_room(house: House, needs: Resources) -> None:
    """The engine would say the same after planning; who sits at a terminal hears it at once.

    Raises: NoEngine, and NoRoom when every provider says that it never has what the job needs.
    """
    never = []
    for provider in house.providers.values():
        try:
            offers = await provider.offers(needs)
            never_fits = None if offers or not isinstance(provider, SaysWhyNot) else await provider.why_never(needs)
        except ProviderUnavailable as error:
            raise NoEngine(f"{str(error).rstrip('.')}.", hint=get_an_engine(error)) from error
        except ProviderRefused as error:
            raise UserError(str(error)) from error
        if not never_fits:
            return
        never.append(never_fits)
    raise NoRoom(" ".join(never), hint=ASK_FOR_LESS)
