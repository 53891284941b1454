"""What a pull request changes of a check: of a job as the base branch has it, and of the file. Pure.

The head may add jobs. What it changes of one that the base has changes what its check means, and a person has to see
it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from gpurun.domain.changed import Changed
from gpurun.domain.config import Job, ModelKeys
from gpurun.domain.ids import HubRef, ImageTag
from gpurun.domain.lock import Lock
from gpurun.domain.part import Part
from gpurun.domain.plan import HubKind
from gpurun.domain.quantity import written_size

CHECKED: Mapping[str, tuple[str, ...]] = {
    "run": ("run", "workdir", "env", "checkout"),
    "setup": ("setup", "setup_inputs"),
    "image": ("image", "build"),
    "models": ("models", "datasets"),
    "assert": ("assert",),
    "limits": ("limits",),
    "resources": ("resources",),
    "secrets": ("secrets",),
    "required": ("required",),
    "paths": ("paths",),
}
"""What a check is made of, and the keys of the file that say it: all that decides what runs, and what its end means.

Tests that find no GPU, or no token, are often skipped, and the job passes: `resources` and `secrets` are of the check.
"""

CONTEXT = 3
"""Lines around a change, as everywhere."""
MAX_COMPARED = 250_000
"""Lines of one side times lines of the other: comparing costs that much, and the head is anybody's."""


def changed_check(base: Job | None, head: Job | None, *, base_lock: Lock, head_lock: Lock) -> tuple[Changed, ...]:
    """Empty when the check is the one of the base, or the base has none of that name.

    `base_lock`, `head_lock`: what `.gpurun.lock` holds on either side. A name that stands for another image or revision
    than before is a change, whether the name changed or not.
    """
    if base is None:
        return ()
    if head is None:
        every = [line for lines in _parts(base, base_lock).values() for line in lines]
        return (Changed(key="job", diff=diff(every, ())),)
    before, after = _parts(base, base_lock), _parts(head, head_lock)
    return tuple(Changed(key=key, diff=diff(before[key], after[key])) for key in CHECKED if before[key] != after[key])


def diff(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """Lines of a unified diff without its head; `@@` between two places."""
    same = _alike(before, after)
    end = _alike(before[same:][::-1], after[same:][::-1])
    old, new = before[same : len(before) - end], after[same : len(after) - end]
    if not old and not new:
        return ()
    above = before[max(0, same - CONTEXT) : same]
    below = before[len(before) - end :][:CONTEXT]
    middle = _compared(old, new) if len(old) * len(new) <= MAX_COMPARED else _replaced(old, new)
    return (*(f" {line}" for line in above), *middle, *(f" {line}" for line in below))


def file_diff(before: str | None, after: str | None) -> tuple[str, ...]:
    """Of two texts of a file; None: it is not there."""
    return diff(_lines(before), _lines(after))


def _lines(text: str | None) -> list[str]:
    return [] if text is None else text.removesuffix("\n").split("\n")


def _alike(a: Sequence[str], b: Sequence[str]) -> int:
    """How many lines at the beginning are the same."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _compared(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for number, group in enumerate(
        difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT)
    ):
        if number:
            yield "@@"
        for tag, a, b, c, d in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[a:b])
            else:
                yield from _replaced(old[a:b], new[c:d])


def _replaced(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)


def _parts(job: Job, lock: Lock) -> dict[str, list[str]]:
    values = {name: getattr(job, name, None) for names in CHECKED.values() for name in names}
    values["image"] = _image(job, lock)
    values["models"] = [_model("model", one, lock) for one in job.models]
    values["limits"] = {**_keys(job.limits), "max_duration": f"{job.max_duration_s}s"}  # that of its kind, too
    values["resources"] = {name: _measured(name, value) for name, value in _keys(job.resources).items()}
    values["datasets"] = [_model("dataset", one, lock) for one in job.datasets]
    return {key: [line for name in names for line in _written(name, values[name])] for key, names in CHECKED.items()}


def _image(job: Job, lock: Lock) -> str | None:
    """As it is written, and what it stands for."""
    if not isinstance(job.image, ImageTag):
        return job.image
    entry = lock.image(job.image)
    return f"{job.image} (not in `.gpurun.lock`)" if entry is None else str(entry.image)


def _model(kind: HubKind, keys: ModelKeys, lock: Lock) -> ModelKeys | Mapping[str, object]:
    if not isinstance(keys.ref, HubRef):
        return keys
    entry = lock.model(keys.id, keys.ref, kind)
    stands_for = "not in `.gpurun.lock`" if entry is None else str(entry.revision)
    return {**_keys(keys), "revision": f"{keys.ref} ({stands_for})"}


def _measured(name: str, value: object) -> object:
    return written_size(value) if isinstance(value, int) and name != "cpu" else value


def _keys(part: Part) -> dict[str, object]:
    """Those that are not at their default, in the order of the reference page."""
    values = {name: getattr(part, name) for name in part.KEYS}
    return {name: value for name, value in values.items() if value != part.KEYS[name].default}


def _written(name: str, value: object) -> Iterator[str]:
    """One value as lines that look like the file; nothing for what is not there."""
    if value is None or value in ("", (), {}, []):
        return
    match value:
        case Part():
            inner = [line for key, one in _keys(value).items() for line in _written(key, one)]
        case Mapping():
            inner = [line for key in sorted(value) for line in _written(str(key), value[key])]
        case tuple() | list():
            inner = [line for one in value for line in _item(one)]
        case str() if "\n" in value:
            yield f"{name}: |"
            yield from (f"  {line}" for line in value.removesuffix("\n").split("\n"))
            return
        case _:
            yield f"{name}: {_word(value)}"
            return
    if inner:
        yield f"{name}:"
        yield from (f"  {line}" for line in inner)


def _item(value: object) -> list[str]:
    if isinstance(value, Part | Mapping):
        keys = _keys(value) if isinstance(value, Part) else dict(value)
        lines = [line for key, one in keys.items() for line in _written(str(key), one)]
        return [f"{'- ' if number == 0 else '  '}{line}" for number, line in enumerate(lines)]
    return [f"- {_word(value)}"]


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
