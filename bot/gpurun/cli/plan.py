"""`gpurun plan`: what a run of this checkout would be, without running it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import click
from rich.text import Text

from gpurun.adapters.local import LocalForge, LocalState
from gpurun.cli.paper import paper
from gpurun.cli.plan_screen import Row, line_of, plan_rows
from gpurun.cli.planning import At, Draft, draft, local_build, local_source, look_at, model_files
from gpurun.cli.the_file import file_on_disk
from gpurun.cli.the_job import config_of, job_of, or_code
from gpurun.cli.tracked_dotenv import dotenv_note
from gpurun.cli.trouble import HUB_HINT
from gpurun.domain.config import Config, Job
from gpurun.domain.errors import NotByPolicy
from gpurun.domain.ids import CommitSha, JobName
from gpurun.domain.text import clean
from gpurun.plan.digest import canonical, digest, result_key
from gpurun.plan.locked import unknown_hashes
from gpurun.plan.policy import require_allowed

DIRTY_SHOWN = 3
HASHES_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was typed."""

    job: str
    commit: str | None = None
    """None: this checkout as it is, with what is not committed."""
    path: str | None = None
    """The folder of the file, from the top of the checkout; None: that top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What there is to show."""

    at: At
    job: Job
    draft: Draft
    notes: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """It has a digest."""
        return not self.draft.unlisted and not unknown_hashes(self.draft.plan)


def plan_people(wish: Wish) -> int:
    """Lines on stdout. 0; 2 for a file or pin that cannot be used; 3 when the hub was needed and did not answer."""
    planned = or_code("gpurun plan", lambda: anyio.run(_plan, wish))
    if isinstance(planned, int):
        return planned
    console = paper()
    plan = planned.draft.plan
    console.print(Text(f"{plan.job} · {plan.repo} at {plan.commit[:12]}", "bold"), soft_wrap=True)
    for note in planned.notes:
        console.print(Text(clean(note), "yellow"), soft_wrap=True)
    for row in plan_rows(plan, planned.job, planned.draft.lock):
        console.print(Text(line_of(row)), soft_wrap=True)
    for row in _identity(planned):
        console.print(Text(line_of(row), "bold"), soft_wrap=True)
    return _code(planned)


def plan_json(wish: Wish) -> int:
    """One JSON object on stdout when there is a plan. Exit code as `plan_people`."""
    planned = or_code("gpurun plan", lambda: anyio.run(_plan, wish))
    if isinstance(planned, int):
        return planned
    plan = planned.draft.plan
    whole = planned.is_whole
    told = {
        "plan": json.loads(canonical(plan)),
        "tree": plan.tree,
        "digest": digest(plan) if whole else None,
        "result_key": result_key(plan) if whole else None,
        "notes": list(planned.notes),
    }
    click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    return _code(planned)


def _code(planned: Planned) -> int:
    return 0 if planned.is_whole else 3


def _identity(planned: Planned) -> Iterator[Row]:
    if planned.is_whole:
        yield "digest", digest(planned.draft.plan)
        yield "result key", result_key(planned.draft.plan)
    else:
        yield "digest", "not known: see above"


async def _plan(wish: Wish) -> Planned:
    folder = file_on_disk(wish.path).folder
    forge = LocalForge(Path())
    state = await forge.checkout_state()
    sha, notes = await _chosen(forge, state, wish.commit)
    at = await look_at(forge, state, sha, folder)
    config = config_of(at.config_text, at.file)
    name = job_of(config, wish.job, at.file)
    job = config.jobs[name]
    source = await local_source(forge, at, name, job)
    built = await local_build(forge, at, name, job, source)
    async with model_files(job, at) as files:
        drafted = await draft(at, name, job, files, source, built=built)
    about_dotenv = filter(None, [await dotenv_note(forge, state, sha)])
    return Planned(at=at, job=job, draft=drafted, notes=(*notes, *about_dotenv, *_notes(drafted, config, name)))


async def _chosen(forge: LocalForge, state: LocalState, typed: str | None) -> tuple[CommitSha, tuple[str, ...]]:
    """The commit, and what to tell about it."""
    if typed is not None:
        return await forge.commit_of(typed), ()
    if not state.dirty:
        return state.sha, ()
    shown = ", ".join(state.dirty[:DIRTY_SHOWN])
    more = f" and {len(state.dirty) - DIRTY_SHOWN} more" if len(state.dirty) > DIRTY_SHOWN else ""
    note = f"Uncommitted changes are part of this plan ({shown}{more}): a snapshot, not {state.sha[:12]}."
    return await forge.snapshot(), (note,)


def _notes(drafted: Draft, config: Config, name: JobName) -> Iterator[str]:
    try:
        require_allowed(config.jobs[name], name, config.policy)
    except NotByPolicy as error:
        yield f"Only `gpurun run` would run this: the `policy` of this file does not allow it on a server. {error}"
    if drafted.trouble is not None:
        yield _unknown_note(drafted)


def _unknown_note(drafted: Draft) -> str:
    """What a plan without digest lacks, and why."""
    if drafted.unlisted:
        lacking = f"the files of {', '.join(spec.id for spec in drafted.unlisted)} are not known"
    else:
        paths = unknown_hashes(drafted.plan)
        more = f" and {len(paths) - HASHES_SHOWN} more" if len(paths) > HASHES_SHOWN else ""
        lacking = f"the SHA-256 of {', '.join(paths[:HASHES_SHOWN])}{more} is not known"
    return f"No digest: {lacking}, and the hub does not answer. {drafted.trouble} {HUB_HINT}"
