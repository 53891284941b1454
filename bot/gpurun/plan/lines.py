"""Where in `.gpurun.yml` stands what only the hub could find wrong."""

from __future__ import annotations

from gpurun.domain.errors import ConfigError, NothingIncluded
from gpurun.domain.ids import JobName
from gpurun.domain.plan import ModelSpec
from gpurun.plan.load import tree
from gpurun.plan.nodes import Items, Node, Table, Text

_KEYS = ("include", "exclude")


def at_include(error: NothingIncluded, spec: ModelSpec, file: str | bytes | None, job: JobName) -> ConfigError:
    """The error at the patterns of that model. The file is a good one that has the job."""
    at = _patterns(spec, _entries(tree(file), job, f"{spec.kind}s"))
    return ConfigError(
        error.message,
        line=at.line if at else 1,
        column=at.column if at else 1,
        hint="Write patterns that match files of the repository, or delete the key for all of them.",
    )


def _entries(root: Table, job: JobName, name: str) -> Node | None:
    for keys in (_value(_value(root, "jobs"), job), _value(root, "defaults")):
        found = _value(keys, name)
        if found is not None:
            return found
    return None


def _patterns(spec: ModelSpec, models: Node | None) -> Text | None:
    """The key of `include`, or else of `exclude`."""
    for model in models.items if isinstance(models, Items) else ():
        same = [_texts(model, "id") == (spec.id,), _texts(model, "include") == spec.include]
        if isinstance(model, Table) and all(same) and _texts(model, "exclude") == spec.exclude:
            found = (model.find(key) for key in _KEYS)
            return next((entry[0] for entry in found if entry is not None), None)
    return None


def _texts(node: Node, key: str) -> tuple[str, ...]:
    value = _value(node, key)
    items = value.items if isinstance(value, Items) else [value]
    return tuple(item.value for item in items if isinstance(item, Text))


def _value(node: Node | None, key: str) -> Node | None:
    found = node.find(key) if isinstance(node, Table) else None
    return found and found[1]
