"""What a pull request must have passed, from the files of its base branch and of its head. Pure.

The base branch says what is required, and for which changes. The head may add required jobs. What it changes of one
that the base requires is told, and so is a head that nobody can read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpurun.domain.changed import Changed
from gpurun.domain.config import Config, Job
from gpurun.domain.errors import ConfigError
from gpurun.domain.folder import config_path
from gpurun.domain.gate import GateLook, Needed
from gpurun.domain.ids import JobName
from gpurun.domain.lock import Lock
from gpurun.domain.run import Fault
from gpurun.plan.changes import changed_check
from gpurun.plan.load import check
from gpurun.plan.paths import touched

MAX_BY_HEAD = 20
"""Jobs that only the head requires: its author may be anybody, and each is a row of the gate."""
MAX_COMPARED_BY_HEAD = 5_000_000
MAX_DIFF_LINES = 400
"""Of one change, as it is kept."""
MAX_FAULTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The file of one folder, on the base branch or at the head."""

    text: str | None = None
    """None when there is none."""
    fault: str = ""
    """Why its text could not be had, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder whose file may require jobs."""

    folder: str
    base: Side = field(default_factory=Side)
    head: Side = field(default_factory=Side)
    base_lock: Lock = field(default_factory=Lock)
    head_lock: Lock = field(default_factory=Lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """What the pull request changes."""

    paths: tuple[str, ...]
    all_there: bool = True
    """False: it changes more files than the forge lists, or more folders than are looked through."""


def look(folders: Sequence[Folder], changes: Touched, *, base_ref: str) -> GateLook:
    """What is required of this commit."""
    needed: list[Needed] = []
    base_faults: list[str] = []
    head_faults: list[Fault] = []
    for folder in folders:
        base, head = _read(folder.base), _read(folder.head)
        if isinstance(base, _Unread):
            base_faults.append(f"`{config_path(folder.folder)}` of the base branch cannot be read: {base.why}")
            continue
        required = _required(base)
        if required and isinstance(head, _Unread):
            head_faults += [
                Fault(file=config_path(folder.folder), line=error.line, text=str(error.message))
                for error in head.errors
                if error.line
            ]
        needed += _of_base(folder, required, head, changes)
        if isinstance(head, Config):
            needed += _of_head(folder, base, head, changes)
    there = any(one.base.text is not None or one.head.text is not None for one in folders)
    own = [one for one in needed if one.by_head][:MAX_BY_HEAD]
    return GateLook(
        needed=tuple([one for one in needed if not one.by_head] + own),
        fault=" ".join(base_faults[:3]),
        unsure=_UNSURE if there and not changes.all_there else "",
        base_ref=base_ref,
        faults=tuple(head_faults[:MAX_FAULTS]),
    )


def names_what_moves(folder: Folder) -> bool:
    """Whether `.gpurun.lock` can change what a required job of the base is."""
    base, head = _read(folder.base), _read(folder.head)
    if not isinstance(base, Config):
        return False
    required = _required(base)
    heads = [head.jobs[name] for name in required if name in head.jobs] if isinstance(head, Config) else []
    return any(job.needs_lock for job in (*required.values(), *heads))


_UNSURE = (
    "The pull request changes more files or folders than are looked through, so a job that is required "
    "may not be named here."
)


@dataclass(frozen=True, slots=True)
class _Unread:
    why: str
    errors: tuple[ConfigError, ...] = ()


def _read(side: Side) -> Config | _Unread | None:
    """None for no file."""
    if side.fault:
        return _Unread(side.fault)
    if side.text is None:
        return None
    found = check(side.text)
    if isinstance(found, Config):
        return found
    line = f"line {found[0].line}: " if found[0].line else ""
    return _Unread(f"{line}{found[0].message}", found)


def _required(config: Config | None) -> Mapping[JobName, Job]:
    return {} if config is None else {name: job for name, job in config.jobs.items() if job.is_required}


def _of_base(
    folder: Folder, required: Mapping[JobName, Job], head: Config | _Unread | None, changes: Touched
) -> Iterator[Needed]:
    for name, job in required.items():
        needed = Needed(job=name, folder=folder.folder, applies=_applies(folder, job, changes))
        if isinstance(head, _Unread):
            yield replace(needed, fault=f"`{config_path(folder.folder)}` of this commit cannot be read: {head.why}")
            continue
        own = None if head is None else head.jobs.get(name)
        changed = changed_check(job, own, base_lock=folder.base_lock, head_lock=folder.head_lock)
        yield replace(needed, gone=own is None, changed=tuple(map(_kept, changed)))


def _of_head(folder: Folder, base: Config | None, head: Config, changes: Touched) -> Iterator[Needed]:
    known = _required(base)
    added = [(name, job) for name, job in head.jobs.items() if job.is_required and name not in known]
    for name, job in added[:MAX_BY_HEAD]:
        applies = _applies(folder, job, changes, most=MAX_COMPARED_BY_HEAD)
        yield Needed(job=name, folder=folder.folder, applies=applies, by_head=True)


def _applies(folder: Folder, job: Job, changes: Touched, *, most: int | None = None) -> bool:
    if not changes.all_there:
        return True
    if most is None:
        return touched(changes.paths, folder.folder, job.paths)
    return touched(changes.paths, folder.folder, job.paths, most=most)


def _kept(changed: Changed) -> Changed:
    lines = changed.diff
    if len(lines) <= MAX_DIFF_LINES:
        return changed
    left = len(lines) - MAX_DIFF_LINES
    return replace(changed, diff=(*lines[:MAX_DIFF_LINES], f"@@ {left} more lines"))
