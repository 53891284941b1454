"""Where in `.gpurun.yml` stands what only the hub or a provider could find wrong."""

from __future__ import annotations

from gpurun.domain.errors import ConfigError, NoSuchInput, NothingIncluded
from gpurun.domain.ids import JobName
from gpurun.domain.plan import ModelSpec
from gpurun.plan.load import tree
from gpurun.plan.nodes import Items, Node, Table, Text, value_of

_KEYS = ("include", "exclude")


def at_include(error: NothingIncluded, spec: ModelSpec, file: str | bytes | None, job: JobName) -> ConfigError:
    """The error at the patterns of that model. The file is a good one that has the job."""
    models = _entry(tree(file), job, f"{spec.kind}s")
    at = _patterns(spec, models and models[1])
    return ConfigError(
        error.message,
        line=at.line if at else 1,
        column=at.column if at else 1,
        hint="Write patterns that match files of the repository, or delete the key for all of them.",
    )


def at_build(error: ConfigError, file: str | bytes | None, job: JobName) -> ConfigError:
    """The error at the job's `build`, or at its `registry` when it speaks of that. The file is a good one."""
    key = "registry" if error.message.startswith("`registry`") else "build"
    found = _entry(tree(file), job, key)
    at = found[0] if found else None
    return ConfigError(error.message, line=at.line if at else 1, column=at.column if at else 1, hint=error.hint)


def at_input(error: NoSuchInput, file: str | bytes | None, job: JobName) -> ConfigError:
    """The error at the pattern. The file is a good one that has the job."""
    found = _entry(tree(file), job, "setup_inputs")
    items = found[1].items if found is not None and isinstance(found[1], Items) else ()
    same = (item for item in items if isinstance(item, Text) and item.value == error.pattern)
    at = next(same, found[0] if found else None)
    return ConfigError(error.message, line=at.line if at else 1, column=at.column if at else 1, hint=error.hint)


def resources_line(file: str | bytes | None, job: str) -> int:
    """Where the job's `resources` stand, or those of `defaults`; 0 when neither has any. The file is a good one."""
    found = _entry(tree(file), job, "resources")
    return found[0].line if found is not None else 0


def _entry(root: Table, job: str, name: str) -> tuple[Text, Node] | None:
    """Key and value of the job, or else of `defaults`."""
    for keys in (value_of(value_of(root, "jobs"), job), value_of(root, "defaults")):
        found = keys.find(name) if isinstance(keys, Table) else None
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
    value = value_of(node, key)
    items = value.items if isinstance(value, Items) else [value]
    return tuple(item.value for item in items if isinstance(item, Text))
