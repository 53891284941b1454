"""The part of `gpurun lock` that asks registries and the hub, writes the file and shows what changed."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from gpurun.cli.environment import read_settings
from gpurun.cli.lock import ALL_JOBS, Place
from gpurun.cli.lock_login import login_for
from gpurun.cli.lock_screen import LockScreen
from gpurun.cli.logs import log_trouble_only
from gpurun.cli.trouble import tell
from gpurun.command.parse import suggest
from gpurun.domain.errors import GpurunError, PinNotFound, Transient, UserError
from gpurun.domain.folder import A_LINK, not_a_file
from gpurun.domain.ids import ImageTag
from gpurun.domain.image import RegistryLogin
from gpurun.domain.lock import LockedFile, LockedImage, LockedModel
from gpurun.domain.plan import ModelFile, ModelSpec
from gpurun.plan.lock import MAX_LOCK_BYTES, and_all, with_day, write_lock
from gpurun.plan.relock import Entry, ModelName, Name, entry_of, renewed, to_look_up
from gpurun.wiring import Sources, open_sources

PARALLEL = 8
"""Names that are looked up at a time: registries and the hub count requests."""
COMMAND = "gpurun lock"


_Logins = Mapping[ImageTag, RegistryLogin | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """What was found, and why the rest was not."""

    found: Mapping[Name, Entry]
    failed: Mapping[Name, GpurunError]


def write_locks(places: Sequence[Place], *, upgrade: str | None) -> int:
    """Exit code 0; 2 when a pin does not exist, 3 when a registry or the hub does not answer. The rest is written."""
    log_trouble_only()
    try:
        jobs = [_upgraded(place, upgrade) for place in places]
        if upgrade and not any(jobs):
            raise _no_job(upgrade, places)
        return anyio.run(_write_all, tuple(zip(places, jobs, strict=True)))
    except GpurunError as error:
        tell(COMMAND, error)
        return 2 if isinstance(error, UserError) else 3


def _upgraded(place: Place, upgrade: str | None) -> tuple[str, ...]:
    """The jobs whose names are looked up again."""
    if upgrade is None:
        return ()
    return tuple(job for job in place.config.jobs if upgrade in {ALL_JOBS, job})


def _no_job(upgrade: str, places: Sequence[Place]) -> UserError:
    jobs = [job for place in places for job in place.config.jobs]
    meant = suggest(upgrade, jobs)
    guess = f" Did you mean {meant!r}?" if meant in jobs else ""
    return UserError(f"There is no job {upgrade!r} in {places[0].file}.{guess}", hint=f"Jobs: {', '.join(jobs)}.")


async def _write_all(work: Sequence[tuple[Place, tuple[str, ...]]]) -> int:
    settings = read_settings()
    screen = LockScreen()
    code = 0
    async with open_sources(settings) as sources:
        for place, jobs in work:
            code = _worse(code, await _write_one(place, jobs, sources, screen))
    return code


async def _write_one(place: Place, jobs: Sequence[str], sources: Sources, screen: LockScreen) -> int:
    names = to_look_up(place.config, place.lock, jobs, place.built)
    logins = {name: login_for(place, name) for name in names if isinstance(name, ImageTag)}
    with screen.asking(len(names)):
        answers = await _look_up(names, logins, sources)
    lock, rows = renewed(place.config, place.lock, answers.found, place.built, keeps_unneeded=bool(answers.failed))
    written = False
    if place.lock_file.exists() or any(row.after is not None for row in rows):
        written = await anyio.to_thread.run_sync(_write, place.lock_file, write_lock(lock))
    screen.shows(place, rows, failed=answers.failed.keys(), written=written)
    for name, error in answers.failed.items():
        tell(COMMAND, _told(_placed(error, name, place), entry_of(place.lock, name)))
    codes = [2 if isinstance(error, UserError) else 3 for error in answers.failed.values()]
    return _worse(*codes) if codes else 0


def _worse(*codes: int) -> int:
    """2 before 3: what no later try mends is told first."""
    return 2 if 2 in codes else max(codes)


def _placed(error: GpurunError, name: Name, place: Place) -> GpurunError:
    """Registries know of `image:` only; what a Dockerfile names is corrected there."""
    in_dockerfiles = [tags[name] for tags in place.built.values() if isinstance(name, ImageTag) and name in tags]
    in_file = any(job.image == name for job in place.config.jobs.values())
    if isinstance(error, UserError | Transient) and in_dockerfiles and not in_file:
        error.hint = error.hint.replace("`image:`", and_all(tuple(dict.fromkeys(in_dockerfiles))))
    return error


def _told(error: GpurunError, before: Entry | None) -> GpurunError:
    return with_day(error, before) if isinstance(error, PinNotFound) else error


async def _look_up(names: Sequence[Name], logins: _Logins, sources: Sources) -> _Answers:
    """All names, some at a time. One that fails leaves the others alone."""
    found: dict[Name, Entry] = {}
    failed: dict[Name, GpurunError] = {}
    limit = anyio.CapacityLimiter(PARALLEL)

    async def look_up(name: Name) -> None:
        async with limit:
            try:
                found[name] = await _entry(name, logins, sources)
            except GpurunError as error:
                failed[name] = error

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(look_up, name)
    return _Answers(found=found, failed={name: failed[name] for name in names if name in failed})


async def _entry(name: Name, logins: _Logins, sources: Sources) -> Entry:
    today = sources.clock.now().date().isoformat()
    if isinstance(name, ImageTag):
        pin = await sources.images.pin(name.name, name.tag, login=logins.get(name))
        return LockedImage(ref=name, pin=pin, locked_on=today)
    return await _model(name, sources, today)


async def _model(name: ModelName, sources: Sources, today: str) -> LockedModel:
    """With its files: the hub shows the list of a gated model to everybody, and only who asks for a file is told."""
    revision = await sources.hub.revision_of(name.id, name.ref, kind=name.kind)
    pin = await sources.hub.resolve(ModelSpec(id=name.id, kind=name.kind, revision=revision))
    files = tuple(_file(file) for file in pin.files)
    return LockedModel(id=name.id, kind=name.kind, ref=name.ref, revision=revision, locked_on=today, files=files)


def _file(file: ModelFile) -> LockedFile:
    by_sha256 = file.etag == file.sha256
    return LockedFile(
        path=file.path,
        size=file.size,
        sha256=file.sha256 if by_sha256 else "",
        blob="" if by_sha256 else file.etag,
    )


def _write(path: Path, text: str) -> bool:
    """Whether there was anything to write. All or nothing, and never through a link. Raises UserError."""
    data = text.encode()
    if len(data) > MAX_LOCK_BYTES:
        raise UserError(
            f"{path} would have {len(data) >> 10} KiB, more than the {MAX_LOCK_BYTES >> 10} KiB that are read.",
            hint="Pin the model with the most files by its 40-digit commit in `.gpurun.yml`; then it needs no entry.",
        )
    try:
        if path.is_symlink():
            raise not_a_file(path, A_LINK)
        if path.exists() and path.read_bytes() == data:
            return False
        _replace(path, data)
    except OSError as error:
        hint = f"`ls -ld {shlex.quote(str(path.parent))}` shows who may write there, `df` whether there is room."
        raise UserError(f"{path} cannot be written: {error.strerror}.", hint=hint) from error
    return True


def _replace(path: Path, data: bytes) -> None:
    """The new file has the permissions of the old one, or those that new files get here."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:  # noqa: PTH123
            if path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
