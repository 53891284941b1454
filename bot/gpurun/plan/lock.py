"""`.gpurun.lock`: reading, writing, and what a job becomes with it.

One JSON object a line, so that two branches that add different pins merge: first `{"gpurun_lock":1}`, then images,
models, and behind each model its files. The same lock is always the same bytes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, NoReturn

from gpurun.domain.config import MAIN, Job, ModelKeys
from gpurun.domain.config_values import MODEL_ID_PATTERN
from gpurun.domain.errors import ConfigError, PinNotFound, UserError
from gpurun.domain.folder import beside, config_path, is_safe_path
from gpurun.domain.ids import HubRef, ImageRef, ImageTag, Revision
from gpurun.domain.lock import ImagePin, Lock, LockedFile, LockedImage, LockedModel
from gpurun.domain.plan import HubKind, ModelPin, ModelSpec, hub_path
from gpurun.domain.quantity import quoted
from gpurun.plan.source import merge_mark

LOCK_NAME = ".gpurun.lock"
FORMAT = 1
MAX_LOCK_BYTES = 2 * 1024 * 1024
"""Some 10,000 files of models."""
MAX_FILE_BYTES = 2**50
"""Of one file of a model: a PiB."""

_MODEL_ID = re.compile(MODEL_ID_PATTERN)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BLOB = re.compile(r"[0-9a-f]{40}")
_KEYS = {
    "gpurun_lock": {"gpurun_lock"},
    "image": {"image", "digest", "platforms", "locked_on"},
    "model": {"model", "ref", "revision", "locked_on"},
    "dataset": {"dataset", "ref", "revision", "locked_on"},
    "file": {"file", "size", "sha256", "blob"},
}
_Key = tuple[bool, str, HubRef]


class Unpinned(PinNotFound):
    """The job names what can move, and the lock does not pin it."""

    def __init__(
        self,
        images: tuple[ImageTag, ...],
        models: tuple[tuple[str, HubRef], ...],
        *,
        folder: str,
        in_dockerfile: str = "",
    ) -> None:
        names = [f"the image {image}" for image in images] + [
            f"the {path_told(model)} at {ref}" for model, ref in models
        ]
        are = "is" if len(names) == 1 else "are"
        told = and_all(names)
        super().__init__(f"{told[0].upper()}{told[1:]} {are} not pinned, and can move.")
        self.images = images
        self.models = models
        self._in_dockerfile = in_dockerfile
        self.locked_in(folder)

    def locked_in(self, folder: str) -> None:
        """The hint for a file in that folder, seen from where the command is typed."""
        self.hint = f"{lock_again(folder)}\n{_without_lock(self.images, self.models, folder, self._in_dockerfile)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedJob:
    """What a job asks for, with nothing left that can move."""

    images: tuple[ImageRef, ...]
    """The job's own, or those of its Dockerfile."""
    models: tuple[ModelSpec, ...]
    """In the order of the file."""
    locked: Mapping[ImageRef, LockedImage] = field(compare=False)
    """The entries that pin images; not of those that a file pins. They say how it came to be pinned, not what."""
    digests: Mapping[ImageTag, ImageRef] = field(compare=False)
    """Of all tags that are named."""


def path_told(path: str) -> str:
    """`model org/name`, `data set org/name`."""
    return f"data set {path.removeprefix('datasets/')}" if path.startswith("datasets/") else f"model {path}"


def place_of(entry: LockedModel) -> tuple[bool, str, HubRef]:
    """In the file: models, then data sets, by id and ref. No other entry has it."""
    return entry.kind != "model", entry.id, entry.ref


def lock_again(folder: str) -> str:
    """What to do for a file that lies in that folder, seen from where the command is typed: mostly the top."""
    return f"Run `{_command(folder)}` and commit `{beside(folder, LOCK_NAME)}`."


def lock_upgraded(folder: str) -> str:
    """What to do about a pin that does not hold any more; the folder as for `lock_again`."""
    return f"`{_command(folder, '--upgrade')}` pins what the name in `{config_path(folder)}` stands for now."


def _command(folder: str, *options: str) -> str:
    """It is pasted, and whoever opens a pull request chooses the name of the folder."""
    return " ".join(["gpurun lock", *([shlex.quote(config_path(folder))] if folder else []), *options])


def _without_lock(
    images: tuple[ImageTag, ...], models: tuple[tuple[str, HubRef], ...], folder: str, in_dockerfile: str
) -> str:
    """What to write instead of names that can move. A digest is not looked up: a refusal waits for nobody."""
    key, where = ("FROM ", f" {in_dockerfile}") if in_dockerfile else ("image: ", "")
    ways = [
        f"`{key}{image.name}@sha256:<digest>`{where} (`docker buildx imagetools inspect {image.name}:{image.tag}` "
        "prints the digest)"
        for image in images
    ]
    if models:
        ways.append(f"`revision: <commit>` for {and_all([model for model, _ in models])} (40 hex digits, from the hub)")
    file = f" in `{config_path(folder)}`" if models or not in_dockerfile else ""
    return f"Or write{file} what cannot move: {and_all(ways)}."


def pinned(job: Job, lock: Lock, images: Sequence[ImageRef | ImageTag] | None = None, *, folder: str = "") -> PinnedJob:
    """Images by digest and models by revision. `images`: `plan.build.images_of` a job with a build; None: its own.
    `folder`: where the file lies.

    Raises: Unpinned with everything that the lock lacks.
    """
    images = _own(job) if images is None else images
    entries = {tag: lock.image(tag) for tag in images if isinstance(tag, ImageTag)}
    digests = {tag: entry.image for tag, entry in entries.items() if entry is not None}
    wanted = job.from_hub
    revisions = [_revision(kind, keys, lock) for kind, keys in wanted]
    unpinned = tuple(tag for tag in entries if tag not in digests)
    lacking = tuple(
        (hub_path(kind, keys.id), keys.ref)
        for (kind, keys), revision in zip(wanted, revisions, strict=True)
        if revision is None and isinstance(keys.ref, HubRef)
    )
    if unpinned or lacking:
        where = "in the Dockerfile" if job.build is not None else ""
        raise Unpinned(unpinned, lacking, folder=folder, in_dockerfile=where)
    specs = (
        ModelSpec(
            id=keys.id,
            kind=kind,
            revision=revision,
            refs=_refs(kind, keys, wanted),
            target=keys.target,
            include=keys.include,
            exclude=keys.exclude,
        )
        for (kind, keys), revision in zip(wanted, revisions, strict=True)
        if revision is not None
    )
    return PinnedJob(
        images=tuple(dict.fromkeys(digests[one] if isinstance(one, ImageTag) else one for one in images)),
        models=tuple(specs),
        locked={entry.image: entry for entry in entries.values() if entry is not None},
        digests=digests,
    )


def _refs(kind: HubKind, keys: ModelKeys, wanted: Collection[tuple[HubKind, ModelKeys]]) -> tuple[str, ...]:
    """Names of this revision in the container: the one that is written; a commit is `main`, unless another one of that
    repository is, or might be as well.
    """
    written = keys.ref
    if isinstance(written, HubRef) and not written.is_commit:
        return (written,)
    same = [other.ref for at, other in wanted if (at, other.id) == (kind, keys.id)]
    rivals = [ref for ref in same if isinstance(ref, Revision) or ref.is_commit or ref == MAIN]
    own = (written,) if isinstance(written, HubRef) else ()
    return own if len(rivals) > 1 else (MAIN, *own)


def _own(job: Job) -> tuple[ImageRef | ImageTag, ...]:
    return () if job.image is None else (job.image,)


def part_for(job: Job, lock: Lock, images: Collection[ImageRef | ImageTag] | None = None) -> Lock:
    """The entries that this job needs; `images` as for `pinned`."""
    images = _own(job) if images is None else images
    wanted = {(kind, keys.id, keys.ref) for kind, keys in job.from_hub}
    return Lock(
        images=tuple(entry for entry in lock.images if entry.ref in images),
        models=tuple(entry for entry in lock.models if (entry.kind, entry.id, entry.ref) in wanted),
    )


def without_files(lock: Lock) -> Lock:
    """For rows, once the files have been compared."""
    return replace(lock, models=tuple(replace(model, files=()) for model in lock.models))


def require_same_files(lock: Lock, pin: ModelPin, *, folder: str = "") -> None:
    """The hub must list what the lock has seen. `folder`: as for `lock_again`. Raises: PinNotFound."""
    for entry in lock.models:
        if (entry.kind, entry.id, entry.revision) != (pin.kind, pin.id, pin.revision) or not entry.files:
            continue
        listed = {file.path: (file.size, file.etag) for file in pin.files}
        wanted = (file for file in entry.files if pin.spec.wants(file.path))
        locked = {file.path: (file.size, file.sha256 or file.blob) for file in wanted}
        odd = sorted(path for path in listed.keys() | locked.keys() if listed.get(path) != locked.get(path))
        if odd:
            raise PinNotFound(
                f"The hub lists {quoted(odd[0])} of {pin.id} at {pin.revision} otherwise than `{LOCK_NAME}` of "
                f"{entry.locked_on}.",
                hint="A commit never changes, so one of the two is wrong. "
                f"`{_command(folder, '--upgrade')}` believes the hub.",
            )


def with_day(error: PinNotFound, entry: LockedImage | LockedModel | None, *, hint: str = "") -> PinNotFound:
    """What does not hold any more, with the day on which it did; the error itself when the lock did not pin it."""
    if entry is None or not error.pin:
        return error
    return error.last_held(f"on {entry.locked_on}, when `{LOCK_NAME}` pinned it", hint=hint)


def moved_note(locked: LockedImage | None, points_to: str, *, folder: str = "") -> str:
    """What to tell when a tag stands for something else than when it was locked; empty when it does not."""
    if locked is None or not points_to or points_to == locked.pin.digest:
        return ""
    return (
        f"{locked.ref} points to {_short(points_to)} now; this run used the lock's {_short(locked.pin.digest)} of "
        f"{locked.locked_on}. {lock_upgraded(folder)}"
    )


def _short(digest: str) -> str:
    """Enough to recognise it by, as `gpurun lock` shows it."""
    return digest[: len("sha256:") + 12]


def write_lock(lock: Lock) -> str:
    """The text of the file. `read_lock` gives the same lock again, sorted."""
    return "".join(f"{json.dumps(entry, ensure_ascii=False)}\n" for entry in _entries(lock))


def _entries(lock: Lock) -> Iterator[dict[str, object]]:
    yield {"gpurun_lock": FORMAT}
    for image in sorted(lock.images, key=lambda entry: entry.ref):
        platforms = {"platforms": dict(sorted(image.pin.platforms))} if image.pin.platforms else {}
        yield {"image": image.ref, "digest": image.pin.digest, **platforms, "locked_on": image.locked_on}
    for model in sorted(lock.models, key=place_of):
        yield {model.kind: model.id, "ref": model.ref, "revision": model.revision, "locked_on": model.locked_on}
        for file in sorted(model.files, key=lambda entry: entry.path):
            hash_ = {"sha256": file.sha256} if file.sha256 else {"blob": file.blob}
            yield {"file": file.path, "size": file.size, **hash_}


def unreadable_lock(path: object, why: str, *, hint: str = "") -> UserError:
    """What stands in the place of the file is none that can be read."""
    return UserError(f"{path} cannot be read: {why}.", hint=hint or "Move it away, then run `gpurun lock`.")


def read_lock(file: str | bytes) -> Lock:
    """What the file holds. Raises ConfigError with the line."""
    text = _text(file)
    images: dict[ImageTag, LockedImage] = {}
    models: dict[_Key, LockedModel] = {}
    files: dict[str, LockedFile] = {}
    open_model: LockedModel | None = None
    opened_in = 0
    for number, line in enumerate(text.rstrip().split("\n"), 1):
        entry = _object(line, number)
        if number == 1:
            _require_format(entry)
        elif "image" in entry:
            image = _image(entry, number)
            _require_new(image.ref, images, number)
            images[image.ref] = image
        elif "model" in entry or "dataset" in entry:
            _close(open_model, opened_in, files, models)
            open_model, opened_in, files = _model(entry, number), number, {}
            _require_new(place_of(open_model), models, number)
        elif "file" in entry and open_model is not None:
            locked = _file(entry, number)
            _require_new(locked.path, files, number)
            files[locked.path] = locked
        else:
            _wrong(number, "this line belongs to nothing")
    _close(open_model, opened_in, files, models)
    return Lock(
        images=tuple(images[ref] for ref in sorted(images)),
        models=tuple(models[key] for key in sorted(models)),
    )


def _close(
    model: LockedModel | None, opened_in: int, files: dict[str, LockedFile], models: dict[_Key, LockedModel]
) -> None:
    if model is None:
        return
    if not files:  # nobody would notice that the hub lists other ones now
        _wrong(opened_in, f"this {'model' if model.kind == 'model' else 'data set'} has no `file` line below it")
    models[place_of(model)] = replace(model, files=tuple(files[path] for path in sorted(files)))


def _text(file: str | bytes) -> str:
    if len(file) > MAX_LOCK_BYTES:
        _wrong(1, f"the file has more than {MAX_LOCK_BYTES >> 20} MiB", _ANEW)
    try:
        text = file if isinstance(file, str) else file.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = file[: exc.start].count(b"\n") + 1 if isinstance(file, bytes) else 1
        _wrong(line, "the file is not UTF-8", _ANEW)
    text = text.removeprefix("\ufeff")
    if not text.strip():
        _wrong(1, "the file is empty", _ANEW)
    if mark := merge_mark(text):
        raise ConfigError(
            "the file has marks of a merge that was not finished",
            file=LOCK_NAME,
            line=mark,
            hint="Delete the three marks; entries that both sides have must stand there once. Then run `gpurun lock`.",
        )
    return text


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        _wrong(number, "this line is no JSON object")
    if not isinstance(entry, dict):
        _wrong(number, "this line is no JSON object")
    kind = next((key for key in _KEYS if key in entry), "")
    odd = sorted(entry.keys() - _KEYS.get(kind, set()))
    if odd:
        _wrong(number, f"the key {quoted(odd[0])} is unknown")
    return entry


def _require_format(entry: dict[str, Any]) -> None:
    if entry.get("gpurun_lock") != FORMAT:
        raise ConfigError(
            f'the first line must be {{"gpurun_lock": {FORMAT}}}',
            file=LOCK_NAME,
            hint="If a newer gpurun wrote the file, use that one. Otherwise delete the file and run `gpurun lock`.",
        )


def _require_new(key: object, known: Any, number: int) -> None:
    if key in known:
        _wrong(number, "this entry stands in the file twice")


def _image(entry: dict[str, Any], number: int) -> LockedImage:
    platforms = entry.get("platforms", {})
    if not isinstance(platforms, dict):
        _wrong(number, "`platforms` must be an object")
    for digest in platforms.values():
        _field({"digest": digest}, "digest", _DIGEST, number)
    try:
        ref = ImageTag(_string(entry, "image", number))
    except PinNotFound:
        _wrong(number, "`image` is no image by tag")
    digest = _field(entry, "digest", _DIGEST, number)
    if len(platforms) > 1 and digest in platforms.values():  # what lists several is none of them
        _wrong(number, "`digest` is that of one of its `platforms`, and it must be that of all")
    pin = ImagePin(digest=digest, platforms=tuple(sorted(platforms.items())))
    return LockedImage(ref=ref, pin=pin, locked_on=_day(entry, number))


def _model(entry: dict[str, Any], number: int) -> LockedModel:
    try:
        ref = HubRef(_string(entry, "ref", number))
    except PinNotFound:
        _wrong(number, "`ref` is no branch or tag")
    kind: HubKind = "model" if "model" in entry else "dataset"
    return LockedModel(
        id=_field(entry, kind, _MODEL_ID, number),
        kind=kind,
        ref=ref,
        revision=Revision(_field(entry, "revision", _BLOB, number)),
        locked_on=_day(entry, number),
    )


def _file(entry: dict[str, Any], number: int) -> LockedFile:
    size = entry.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_FILE_BYTES:
        _wrong(number, "`size` is no number of bytes")
    path = _string(entry, "file", number)
    if not is_safe_path(path):
        _wrong(number, f"`file` is {quoted(path)}, which is no path below a folder")
    return LockedFile(
        path=path,
        size=size,
        sha256=_field(entry, "sha256", _SHA256, number) if "sha256" in entry else "",
        blob="" if "sha256" in entry else _field(entry, "blob", _BLOB, number),
    )


def _string(entry: dict[str, Any], key: str, number: int) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        _wrong(number, f"`{key}` must be a text")
    return value


def _field(entry: dict[str, Any], key: str, shape: re.Pattern[str], number: int) -> str:
    value = _string(entry, key, number)
    if not shape.fullmatch(value):
        _wrong(number, f"`{key}` is {quoted(value)}, which is none")
    return value


def _day(entry: dict[str, Any], number: int) -> str:
    value = _field(entry, "locked_on", _DAY, number)
    try:
        date.fromisoformat(value)
    except ValueError:
        _wrong(number, f"`locked_on` is {quoted(value)}, which is no date")
    return value


_ANEW = "Delete the file and run `gpurun lock`, which writes it anew."


def _wrong(number: int, what: str, hint: str = "") -> NoReturn:
    whole = "Delete the entry (a `model` line with all `file` lines below it), or the whole file, and run `gpurun lock`"
    raise ConfigError(what, file=LOCK_NAME, line=number, hint=hint or f"{whole}, which writes it anew.")


def _revision(kind: HubKind, keys: ModelKeys, lock: Lock) -> Revision | None:
    if isinstance(keys.ref, Revision):
        return keys.ref
    entry = lock.model(keys.id, keys.ref, kind)
    return entry.revision if entry is not None else None


def and_all(names: Sequence[str]) -> str:
    """`a, b and c`, of at least one."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
