"""What `.gpurun.lock` should hold for the jobs of a file, and what becomes of the lock once names were looked up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from gpurun.domain.config import Config, Job
from gpurun.domain.ids import HubRef, ImageTag
from gpurun.domain.lock import Lock, LockedImage, LockedModel
from gpurun.domain.plan import HubKind, hub_path
from gpurun.plan.lock import place_of


@dataclass(frozen=True, slots=True, order=True)
class ModelName:
    """A model or data set by branch or tag. In the order of the lock."""

    is_dataset: bool
    id: str
    ref: HubRef

    @property
    def kind(self) -> HubKind:
        """As in the plan."""
        return "dataset" if self.is_dataset else "model"

    def __str__(self) -> str:
        return f"{hub_path(self.kind, self.id)} at {self.ref}"


Name = ImageTag | ModelName
"""What can move, and is therefore locked."""
Entry = LockedImage | LockedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What happens to one name."""

    name: Name
    before: Entry | None
    after: Entry | None
    """None with `before`: no job wants it any more. None without: it could not be pinned."""
    is_needed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Between what jobs want and what the lock has."""

    missing: tuple[Name, ...]
    unneeded: tuple[Name, ...]


Built = Mapping[str, Collection[ImageTag]]
"""The tags that the Dockerfiles of jobs name, by job."""
NONE_BUILT: Built = MappingProxyType({})


def wanted_by(jobs: Iterable[Job], in_dockerfiles: Iterable[ImageTag] = ()) -> tuple[Name, ...]:
    """Everything that can move, images first; each once, in the order of the lock."""
    images: set[ImageTag] = set(in_dockerfiles)
    models: set[ModelName] = set()
    for job in jobs:
        if isinstance(job.image, ImageTag):
            images.add(job.image)
        models |= {
            ModelName(kind == "dataset", keys.id, keys.ref)
            for kind, keys in job.from_hub
            if isinstance(keys.ref, HubRef)
        }
    return (*sorted(images), *sorted(models))


def jobs_that_want(name: Name, config: Config, built: Built = NONE_BUILT) -> tuple[str, ...]:
    """In the order of the file."""
    return tuple(job_name for job_name, job in config.jobs.items() if name in wanted_by([job], built.get(job_name, ())))


def _all_wanted(config: Config, built: Built) -> tuple[Name, ...]:
    return wanted_by(config.jobs.values(), (tag for tags in built.values() for tag in tags))


def difference(config: Config, lock: Lock, built: Built = NONE_BUILT) -> Difference:
    """What the lock lacks, and what it has in vain. Needs no network."""
    wanted, locked = _all_wanted(config, built), names_in(lock)
    return Difference(
        missing=tuple(name for name in wanted if name not in locked),
        unneeded=tuple(name for name in locked if name not in wanted),
    )


def names_in(lock: Lock) -> tuple[Name, ...]:
    """In the order of the lock."""
    return (*(image.ref for image in lock.images), *(ModelName(*place_of(model)) for model in lock.models))


def entry_of(lock: Lock, name: Name) -> Entry | None:
    """The entry of that name."""
    return lock.model(name.id, name.ref, name.kind) if isinstance(name, ModelName) else lock.image(name)


def to_look_up(config: Config, lock: Lock, upgraded: Collection[str], built: Built = NONE_BUILT) -> tuple[Name, ...]:
    """What has no entry yet, and what the jobs want that are upgraded."""
    moving = set(
        wanted_by(
            (job for name, job in config.jobs.items() if name in upgraded),
            (tag for name, tags in built.items() if name in upgraded for tag in tags),
        )
    )
    wanted = _all_wanted(config, built)
    return tuple(name for name in wanted if name in moving or entry_of(lock, name) is None)


def renewed(
    config: Config,
    lock: Lock,
    found: Mapping[Name, Entry],
    built: Built = NONE_BUILT,
    *,
    keeps_unneeded: bool = False,
) -> tuple[Lock, tuple[Row, ...]]:
    """The lock with what was found, and what that changes; a name that was not found keeps the entry it has.

    An entry that says the same as before stays as it was, with its day. `keeps_unneeded`: what no job needs stays,
    for whoever goes back to the name that he has just changed.
    """
    rows = [_row(name, entry_of(lock, name), found.get(name)) for name in _all_wanted(config, built)]
    for name in difference(config, lock, built).unneeded:
        entry = entry_of(lock, name)
        rows.append(Row(name=name, before=entry, after=entry if keeps_unneeded else None, is_needed=False))
    entries = [row.after for row in rows if row.after is not None]
    kept = Lock(
        images=tuple(entry for entry in entries if isinstance(entry, LockedImage)),
        models=tuple(entry for entry in entries if isinstance(entry, LockedModel)),
    )
    return kept, tuple(rows)


def _row(name: Name, before: Entry | None, found: Entry | None) -> Row:
    if found is None or (before is not None and replace(found, locked_on=before.locked_on) == before):
        return Row(name=name, before=before, after=before)
    return Row(name=name, before=before, after=found)
