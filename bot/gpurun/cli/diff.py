"""`gpurun diff`: the plans of two commits, job by job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
import click

from gpurun.adapters.local import LocalForge
from gpurun.cli.diff_screen import show
from gpurun.cli.other_files import hint_by_path
from gpurun.cli.planning import (
    At,
    Draft,
    LockElseHub,
    LockOnly,
    ModelFiles,
    draft,
    local_build,
    lone_source,
    look_at,
    the_hub,
)
from gpurun.cli.the_file import file_on_disk
from gpurun.cli.the_job import config_of, or_code, unknown_job
from gpurun.domain.config import Job
from gpurun.domain.errors import HubUnavailable, UserError
from gpurun.domain.ids import JobName
from gpurun.plan.diff import Change, changes, needs_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was typed."""

    a: str
    b: str
    job: str | None = None
    """None: all."""
    path: str | None = None
    """The folder of the file, from the top of the checkout; None: that top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two commits."""

    typed: str
    at: At
    jobs: Mapping[JobName, Job]
    """None of them when there is no file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDiff:
    """One job."""

    job: JobName
    a: Draft | None = None
    b: Draft | None = None
    only_in: str = ""
    """`a` or `b`: the other file does not have the job."""
    changes: tuple[Change, ...] = ()
    trouble: str = ""
    """Why a side has no plan."""
    note: str = ""
    """What could not be compared; of a job that only one file has, why it has no plan there."""

    @property
    def differs(self) -> bool:
        return bool(self.only_in or self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Everything that there is to show."""

    a: Side
    b: Side
    jobs: tuple[JobDiff, ...]

    @property
    def code(self) -> int:
        if any(one.trouble for one in self.jobs):
            return 2
        return int(any(one.differs for one in self.jobs))


def diff_people(wish: Wish) -> int:
    """Lines on stdout; the exit code: 0 when no plan differs, 1 when one does, 2 when there is none to compare."""
    found = or_code("gpurun diff", lambda: anyio.run(_diff, wish))
    if isinstance(found, int):
        return found
    show(found)
    return found.code


def diff_json(wish: Wish) -> int:
    """One JSON object on stdout when there was something to compare. Exit code as `diff_people`."""
    found = or_code("gpurun diff", lambda: anyio.run(_diff, wish))
    if isinstance(found, int):
        return found
    same_commit, same_tree = found.a.at.sha == found.b.at.sha, found.a.at.tree == found.b.at.tree
    told = {
        "a": {"commit": found.a.at.sha, "tree": found.a.at.tree},
        "b": {"commit": found.b.at.sha, "tree": found.b.at.tree},
        "jobs": {one.job: _told(one, same_commit=same_commit, same_tree=same_tree) for one in found.jobs},
    }
    click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    return found.code


def _told(one: JobDiff, *, same_commit: bool, same_tree: bool) -> dict[str, object]:
    planned = not one.trouble
    return {
        "differs": one.differs if planned else None,
        "only_in": one.only_in,
        "changes": [asdict(change) for change in one.changes],
        "same_digest": planned and not one.differs and same_commit,
        "same_result_key": planned and not one.differs and same_tree,
        "trouble": one.trouble,
        "note": one.note,
    }


async def _diff(wish: Wish) -> Diff:
    folder = file_on_disk(wish.path).folder
    forge = LocalForge(Path())
    state = await forge.checkout_state()
    sides: list[Side] = []
    for typed in (wish.a, wish.b):
        at = await look_at(forge, state, await forge.commit_of(typed), folder)
        # told with the commit: the file on disk may be another one
        jobs = config_of(at.config_text, f"{typed}:{at.file}").jobs if at.config_text is not None else {}
        sides.append(Side(typed=typed, at=at, jobs=jobs))
    a, b = sides
    if a.at.config_text is None and b.at.config_text is None:
        is_new = (state.top / a.at.file).is_file()
        hint = f"It is here, and in neither of them: commit it, `git add {a.at.file}`." if is_new else hint_by_path()
        raise UserError(f"Neither {a.typed} nor {b.typed} has a {a.at.file}.", hint=hint)
    jobs_of_both = dict.fromkeys([*a.jobs, *b.jobs])
    names = [_named(wish.job, tuple(jobs_of_both), a.at.file)] if wish.job is not None else list(jobs_of_both)
    return Diff(a=a, b=b, jobs=tuple([await _job(forge, a, b, name) for name in names]))


def _named(typed: str, jobs: tuple[str, ...], file: str) -> JobName:
    """Raises UserError."""
    if typed not in jobs:
        raise unknown_job(typed, jobs, file)
    return JobName(typed)


async def _job(forge: LocalForge, a: Side, b: Side, name: JobName) -> JobDiff:
    if name not in a.jobs or name not in b.jobs:
        side = a if name in a.jobs else b
        return JobDiff(job=name, only_in="a" if side is a else "b", note=await _no_plan(forge, side, name))
    drafts: list[Draft] = []
    for side in (a, b):
        try:
            drafts.append(await _drafted(forge, side, name, LockOnly()))
        except UserError as error:
            return JobDiff(job=name, trouble=_why_none(side, error))
    note = ""
    if needs_files(drafts[0].plan, drafts[1].plan):
        drafts, note = await _with_hub(forge, a, b, name, drafts)
    first, second = drafts
    return JobDiff(job=name, a=first, b=second, changes=changes(first.plan, second.plan), note=note)


async def _drafted(forge: LocalForge, side: Side, name: JobName, files: ModelFiles) -> Draft:
    """As if the commit pointed to nothing else."""
    at, job = side.at, side.jobs[name]
    source = await lone_source(forge, at, name, job)
    return await draft(at, name, job, files, source, built=await local_build(forge, at, name, job))


async def _no_plan(forge: LocalForge, side: Side, name: JobName) -> str:
    """Why the job has none there, or nothing when it has one."""
    try:
        await _drafted(forge, side, name, LockOnly())
    except UserError as error:
        return _why_none(side, error)
    return ""


def _why_none(side: Side, error: UserError) -> str:
    return " ".join(f"no plan at {side.typed}. {error} {error.hint}".split())


async def _with_hub(forge: LocalForge, a: Side, b: Side, name: JobName, drafts: list[Draft]) -> tuple[list[Draft], str]:
    """The drafts with what the hub lists, or as they are and why it lists nothing."""
    try:
        async with the_hub() as hub:
            more = [await _drafted(forge, side, name, LockElseHub(hub)) for side in (a, b)]
    except UserError as error:
        return drafts, f"Files of models are not compared. {error}"
    trouble: HubUnavailable | None = next((one.trouble for one in more if one.trouble is not None), None)
    return more, f"Files of models are not compared. {trouble}" if trouble is not None else ""
