"""How two plans differ, field by field. Pure.

Commit and tree are left out: they are what is asked about. Files of models are told apart by the hub's own name for
their content (`etag`), which is known without their bytes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from gpurun.domain.build import BuildPlan
from gpurun.domain.plan import ModelFile, ModelPin, Plan, Resources


class Group(StrEnum):
    """A part of a plan, in the order in which they are told."""

    IMAGE = "image"
    BUILD = "build"
    MODELS = "models"
    SETUP = "setup"
    RUN = "run"
    WORKDIR = "workdir"
    ENV = "env"
    SECRETS = "secrets"
    RESOURCES = "resources"
    LIMITS = "limits"
    ARTIFACTS = "artifacts"
    SOURCE = "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One field that is not the same. None: it is not there."""

    group: Group
    name: tuple[str, ...] = ()
    """Within the group: `("SEED",)`, `("org/model", "files", "config.json")`."""
    before: str | int | float | None
    after: str | int | float | None
    size_before: int | None = None
    """Bytes, of files of models."""
    size_after: int | None = None


def changes(a: Plan, b: Plan) -> tuple[Change, ...]:
    """Empty when both would do the same with the files of their commit.

    The files of a model are compared when both sides list them.
    """
    return tuple(_changes(a, b))


def needs_files(a: Plan, b: Plan) -> bool:
    """A model has another revision, and one side does not list its files: `changes` cannot say what became of them."""
    old, new = _by_name(a.models), _by_name(b.models)
    both = [(old[name], new[name]) for name in old.keys() & new.keys()]
    return any(one.revision != other.revision and not (one.files and other.files) for one, other in both)


def _changes(a: Plan, b: Plan) -> Iterator[Change]:
    yield from _one(Group.IMAGE, (), a.container_image, b.container_image)
    yield from _build(a.build, b.build)
    yield from _models(a.models, b.models)
    yield from _one(Group.SETUP, (), a.setup or None, b.setup or None)
    yield from _one(Group.RUN, (), a.run, b.run)
    yield from _one(Group.WORKDIR, (), a.workdir or None, b.workdir or None)
    yield from _each(Group.ENV, dict(a.env), dict(b.env))
    yield from _each(Group.SECRETS, {name: name for name in a.secrets}, {name: name for name in b.secrets})
    yield from _each(Group.RESOURCES, _asked(a.resources), _asked(b.resources))
    yield from _one(Group.LIMITS, ("max_duration_s",), a.max_duration_s, b.max_duration_s)
    yield from _artifacts(a.artifacts, b.artifacts)
    modules = ({f"submodule {one.path}": one.commit for one in plan.submodules} for plan in (a, b))
    yield from _each(Group.SOURCE, *modules)
    tags = ({f"tag {one.name}": one.object for one in plan.tags} for plan in (a, b))
    yield from _each(Group.SOURCE, *tags)
    yield from _one(Group.SOURCE, ("git",), "there" if a.git else None, "there" if b.git else None)
    inputs = ({f"setup input {one.path}": f"{one.blob} {one.mode}" for one in plan.setup_inputs} for plan in (a, b))
    yield from _each(Group.SOURCE, *inputs)
    yield from _one(Group.SOURCE, ("lfs",), "fetched" if a.lfs else None, "fetched" if b.lfs else None)


Value = str | int | float | None


def _build(a: BuildPlan | None, b: BuildPlan | None) -> Iterator[Change]:
    """What of the inputs of a build is not the same; nothing when only one side has one."""
    if a is None or b is None:
        return
    yield from _one(Group.BUILD, ("Dockerfile",), _hash(a.text), _hash(b.text))
    yield from _each(Group.BUILD, *({image.name: image.digest for image in one.images} for one in (a, b)))
    yield from _one(Group.BUILD, ("context",), a.context_sha256, b.context_sha256)
    yield from _one(Group.BUILD, ("target",), a.target or None, b.target or None)
    args = ({f"arg {name}": value for name, value in one.args} for one in (a, b))
    yield from _each(Group.BUILD, *args)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _one(group: Group, name: tuple[str, ...], before: Value, after: Value) -> Iterator[Change]:
    if before != after:
        yield Change(group=group, name=name, before=before, after=after)


def _each(group: Group, before: Mapping[str, Value], after: Mapping[str, Value]) -> Iterator[Change]:
    for name in sorted(before.keys() | after.keys()):
        yield from _one(group, (name,), before.get(name), after.get(name))


def _asked(resources: Resources) -> dict[str, Value]:
    """Without what is not asked for."""
    values = {field.name: getattr(resources, field.name) for field in fields(resources)}
    return {name: value for name, value in values.items() if value}


def _artifacts(before: tuple[str, ...], after: tuple[str, ...]) -> Iterator[Change]:
    """Their order is a part of the plan."""
    yield from _each(Group.ARTIFACTS, {glob: glob for glob in before}, {glob: glob for glob in after})
    if before != after and set(before) == set(after):
        yield Change(group=Group.ARTIFACTS, name=("order",), before=", ".join(before), after=", ".join(after))


def _models(before: tuple[ModelPin, ...], after: tuple[ModelPin, ...]) -> Iterator[Change]:
    old, new = _by_name(before), _by_name(after)
    for name in sorted(old.keys() | new.keys()):
        yield from _model(name, old.get(name), new.get(name))
    if list(old) != list(new) and old.keys() == new.keys():
        yield Change(group=Group.MODELS, name=("order",), before=", ".join(old), after=", ".join(new))


def _by_name(models: tuple[ModelPin, ...]) -> dict[str, ModelPin]:
    """By id; the second of the same id is `org/model#2`."""
    seen: Counter[str] = Counter()
    found: dict[str, ModelPin] = {}
    for model in models:
        seen[model.path] += 1
        found[model.path if seen[model.path] == 1 else f"{model.path}#{seen[model.path]}"] = model
    return found


def _model(name: str, a: ModelPin | None, b: ModelPin | None) -> Iterator[Change]:
    old, new = a.revision if a else None, b.revision if b else None
    yield from _one(Group.MODELS, (name, "revision"), old, new)
    yield from _one(Group.MODELS, (name, "target"), a.target if a else None, b.target if b else None)
    if a and b and a.files and b.files:
        yield from _files(name, a.files, b.files)


def _files(name: str, before: tuple[ModelFile, ...], after: tuple[ModelFile, ...]) -> Iterator[Change]:
    old, new = {file.path: file for file in before}, {file.path: file for file in after}
    for path in sorted(old.keys() | new.keys()):
        a, b = old.get(path), new.get(path)
        if a is None or b is None or (a.etag, a.size) != (b.etag, b.size):
            yield Change(
                group=Group.MODELS,
                name=(name, "files", path),
                before=a.etag if a else None,
                after=b.etag if b else None,
                size_before=a.size if a else None,
                size_after=b.size if b else None,
            )
