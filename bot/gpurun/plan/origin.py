"""Every key of a job with what applies, and where that was written. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from gpurun.domain.config import DEFAULT_KIND, MAIN, Job, JobKeys, ModelKeys
from gpurun.domain.ids import JobName
from gpurun.domain.part import Part
from gpurun.domain.quantity import written_duration
from gpurun.plan.load import load, merged, tree
from gpurun.plan.nodes import Items, Node, Table, Text


class Source(StrEnum):
    """Who said so."""

    JOB = "job"
    DEFAULTS = "defaults"
    PRESET = "preset"
    """The job's `kind`."""
    BUILT_IN = "built-in"
    """Nobody: what gpurun takes then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key."""

    key: str
    """`limits.max_duration`, `env.SEED`, `models[0].id`."""
    value: str | tuple[str, ...]
    """As written; a list as its items. Empty when nothing is asked for."""
    source: Source
    line: int = 0
    """Of the file; 0 when nobody wrote it."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A value of the file, the key before it, and the part of the file that it is from."""

    key: Text
    node: Node
    source: Source


_BuiltIn: TypeAlias = Mapping[str, tuple[str, Source]]


def settings_of(file: str | bytes | None, name: JobName) -> tuple[Setting, ...]:
    """All keys of the job, in the order of the reference page. The file must have it.

    Raises: ConfigError for a file with a fault.
    """
    job = load(file).jobs[name]
    root = _entries(tree(file))
    own = _entries(root["jobs"][1])[name][1]
    defaults = root["defaults"][1] if "defaults" in root else None
    placed = merged(_placed(defaults, Source.DEFAULTS), _placed(own, Source.JOB))
    return tuple(_of_model(JobKeys, placed, "", _built_in(job)))


def _built_in(job: Job) -> _BuiltIn:
    """What applies where nothing is written; a test holds that no key's own default is left out."""
    return {
        "kind": (DEFAULT_KIND, Source.BUILT_IN),
        "trigger.comment": ("true", Source.BUILT_IN),
        "limits.max_duration": (written_duration(job.preset.max_duration_s), Source.PRESET),
        "retry.attempts": (str(job.preset.attempts), Source.PRESET),
    }


def _placed(node: Node | None, source: Source) -> dict[str, Any]:
    """By key, and by the keys below one where there are some, so that `merged` merges them."""
    found: dict[str, Any] = {}
    for name, (key, value) in _entries(node).items():
        inner = {at: _Placed(*entry, source) for at, entry in _entries(value).items()}
        found[name] = inner if isinstance(value, Table) else _Placed(key, value, source)
    return found


def _entries(node: Node | None) -> dict[str, tuple[Text, Node]]:
    return {key.value: (key, value) for key, value in node.entries} if isinstance(node, Table) else {}


def _of_model(model: type[Part], placed: Mapping[str, Any], prefix: str, built_in: _BuiltIn) -> Iterator[Setting]:
    for name, one in model.KEYS.items():
        key, value = f"{prefix}{name}", placed.get(name)
        below = one.form
        if isinstance(value, _Placed) and isinstance(value.node, Table):  # names below the keys of a part
            value = {at: _Placed(*entry, value.source) for at, entry in _entries(value.node).items()}
        if isinstance(below, type):
            value = {below.SHORT: value} if isinstance(value, _Placed) else value
            yield from _of_model(below, value or {}, f"{key}.", built_in)
        elif isinstance(value, Mapping) and value:
            yield from (_of_text(f"{key}.{at}", one) for at, one in value.items())
        elif isinstance(value, _Placed) and name in ("models", "datasets"):
            yield from _of_models(name, value)
        elif isinstance(value, _Placed):
            yield _of_text(key, value)
        else:
            text, source = built_in.get(key, ("", Source.BUILT_IN))
            yield Setting(key=key, value=text, source=source)


def _of_models(name: str, models: _Placed) -> Iterator[Setting]:
    assert isinstance(models.node, Items)
    for number, item in enumerate(models.node.items):
        keys = {at: _Placed(*entry, models.source) for at, entry in _entries(item).items()}
        prefix = f"{name}[{number}]."
        yield from _of_model(ModelKeys, keys, prefix, {f"{prefix}revision": (MAIN, Source.BUILT_IN)})
    if not models.node.items:
        yield Setting(key=name, value="", source=models.source, line=models.key.line)


def _of_text(key: str, placed: _Placed) -> Setting:
    node = placed.node
    items = node.items if isinstance(node, Items) else ()
    value = node.value if isinstance(node, Text) else tuple(item.value for item in items if isinstance(item, Text))
    return Setting(key=key, value=value or "", source=placed.source, line=placed.key.line)
