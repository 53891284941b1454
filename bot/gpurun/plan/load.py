"""`.gpurun.yml` becomes a Config, or an error that says where and what to do.

Four steps: readable text (`source`), a tree that knows positions (`nodes`), the models of `domain.config` over it,
and `defaults` merged into each job. The models decide what is allowed; this module says it in sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpurun.domain.config import (
    PLANNED_KEYS,
    CheckoutKeys,
    Config,
    File,
    JobKeys,
    LimitKeys,
    ModelKeys,
    ResourceKeys,
)
from gpurun.domain.errors import ConfigError, NotInThisVersion
from gpurun.domain.quantity import quoted
from gpurun.plan.nodes import Items, Node, Table, Text, read_nodes
from gpurun.plan.source import quote, readable

Raw: TypeAlias = "str | list[Raw] | dict[str, Raw]"

_KEYS = {
    "file": tuple(File.model_fields),
    "job": tuple(JobKeys.model_fields),
    "limits": tuple(LimitKeys.model_fields),
    "resources": tuple(ResourceKeys.model_fields),
    "checkout": tuple(CheckoutKeys.model_fields),
    "model": tuple(ModelKeys.model_fields),
}
MAX_FAULTS = 50
"""So many are told at once."""
MAX_PLACED_FAULTS = 400
"""So many get a place, of which the topmost are told: a hostile file has thousands."""
MAX_MERGED = 20_000
"""Keys and values of `defaults`, times the jobs that they are merged into: each is checked there again."""

_MERGED = ("env", "resources", "limits", "checkout")

_MEANT = {
    "command": "run",
    "commands": "run",
    "comand": "run",
    "script": "run",
    "install": "setup",
    "environment": "env",
    "weights": "models",
    "docker": "image",
    "container": "image",
    "timeout": "limits: {max_duration: …}",
    "time_out": "limits: {max_duration: …}",
    "max_duration": "limits: {max_duration: …}",
    "gpu": "resources: {gpu: …}",
    "gpus": "resources: {gpu: …}",
    "name": "id",
    "shm": "shm_size",
    "mem": "memory",
    "cpus": "cpu",
}
"""What people write for our keys."""


def load(file: str | bytes | None) -> Config:
    """The file's meaning; None stands for no file. Raises ConfigError (NotInThisVersion) for the first fault in it."""
    found = check(file)
    if isinstance(found, Config):
        return found
    raise found[0]


def check(file: str | bytes | None) -> Config | tuple[ConfigError, ...]:
    """The file's meaning, or the faults in it from top to bottom (one when it is not readable YAML).

    At most MAX_FAULTS, and then one that says how many more there are.
    """
    try:
        return _config(_root(file))
    except ConfigError as exc:
        return (_whole_sentence(exc),)
    except _Faults as exc:
        return tuple(_whole_sentence(error) for error in exc.errors)


def explain(error: ConfigError, file: str | bytes | None) -> str:
    """For a terminal: place and message, the line with a caret, what to do."""
    text = file.decode("utf-8", "replace") if isinstance(file, bytes) else file or ""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return "\n".join(part for part in (str(error), quote(text, error.line, error.column), error.hint) if part)


def resources_line(file: str | bytes | None, job: str) -> int:
    """Where the job's `resources` stand, or those of `defaults`; 0 when neither has any. The file is a good one."""
    root = _root(file)
    jobs = _value(root, "jobs")
    for keys in (_value(jobs, job), _value(root, "defaults")):
        found = keys.find("resources") if isinstance(keys, Table) else None
        if found is not None:
            return found[0].line
    return 0


def _value(table: Node | None, name: str) -> Node | None:
    found = table.find(name) if isinstance(table, Table) else None
    return found and found[1]


def job_names(config: Config) -> tuple[str, ...]:
    """In the order of the file."""
    return tuple(config.jobs)


@dataclass(frozen=True, slots=True)
class _Fault:
    """Its sentence is made when it is told: what was meant takes a while to find."""

    at: Node
    sentence: Callable[[Node], ConfigError]


class _Faults(Exception):
    def __init__(self, errors: tuple[ConfigError, ...]) -> None:
        super().__init__(errors)
        self.errors = errors


def _whole_sentence(error: ConfigError) -> ConfigError:
    """People see message and hint in one line."""
    stop = "" if error.message.endswith((".", "?")) else "."
    return type(error)(error.message + stop, line=error.line, column=error.column, hint=error.hint)


def _root(file: str | bytes | None) -> Table:
    starter = "Start with `version: 1` and `jobs:`; docs/reference/gpurun-yml.md has an example."
    if file is None:
        raise ConfigError("there is no file `.gpurun.yml` at this commit", hint=starter)
    text = readable(file)
    if not text.strip():
        raise ConfigError("the file is empty", hint=starter)
    root = read_nodes(text)
    if root is None or (isinstance(root, Text) and root.is_null):
        raise ConfigError("the file holds only comments", hint=starter)
    if not isinstance(root, Table):
        raise ConfigError("the file must hold keys and values", line=root.line, column=root.column, hint=starter)
    return root


def _config(root: Table) -> Config:
    nulls = tuple(_nulls(root, root))
    raw = _raw(root)
    assert isinstance(raw, dict)
    try:
        File.model_validate(raw)
    except ValidationError as exc:
        raise _Faults(_in_order(chain(_faults(exc, root), nulls))) from None
    if nulls:
        raise _Faults(_in_order(nulls))
    _check_merged(root)
    try:
        return Config.model_validate({"version": raw["version"], "jobs": _merged_jobs(raw)})
    except ValidationError as exc:
        raise _Faults(_in_order(_faults(exc, root))) from None


def _in_order(faults: Iterable[_Fault]) -> tuple[ConfigError, ...]:
    """From top to bottom, one for each place."""
    first: dict[tuple[int, int], _Fault] = {}
    rest = iter(faults)
    for fault in islice(rest, MAX_PLACED_FAULTS):
        first.setdefault((fault.at.line, fault.at.column), fault)
    inside = [first[place] for place in sorted(first)]
    told = [fault.sentence(fault.at) for fault in inside[:MAX_FAULTS]]
    if len(inside) > MAX_FAULTS:
        n_more = len(inside) - MAX_FAULTS
        more = f"{n_more} more fault" + ("s are" if n_more > 1 else " is")
        least = "at least " if any(rest) else ""
        told.append(_at(inside[MAX_FAULTS].at, f"{least}{more} here and below", "Correct those above first."))
    return tuple(told)


def _at(node: Node, message: str, hint: str) -> ConfigError:
    return ConfigError(message, line=node.line, column=node.column, hint=hint)


def _check_merged(root: Table) -> None:
    defaults, jobs = root.find("defaults"), root.find("jobs")
    if defaults is None or jobs is None or not isinstance(jobs[1], Table):
        return
    n_values = _size(defaults[1])
    if n_values * len(jobs[1].entries) > MAX_MERGED:
        raise _at(
            defaults[0],
            f"`defaults` has {n_values:,} keys and values, too many for {len(jobs[1].entries):,} jobs",
            "Move some into the jobs that need them.",
        )


def _size(node: Node) -> int:
    match node:
        case Table(entries):
            return 1 + sum(1 + _size(value) for _, value in entries)
        case Items(items):
            return 1 + sum(_size(item) for item in items)
        case _:
            return 1


def _raw(node: Node) -> Raw:
    match node:
        case Text(value):
            return value
        case Items(items):
            return [_raw(item) for item in items]
        case Table(entries):
            return {key.value: _raw(value) for key, value in entries}


def _nulls(node: Node, key: Node) -> Iterator[_Fault]:
    match node:
        case Text(value, is_null=True):
            yield _Fault(node if value else key, partial(_no_value, key))
        case Items(items):
            for item in items:
                yield from _nulls(item, key)
        case Table(entries):
            for name, inner in entries:
                yield from _nulls(inner, name)


def _no_value(key: Node, at: Node) -> ConfigError:
    what = _shown(key.value) if isinstance(key, Text) else "this item"
    return _at(at, f"{what} has no value", 'Write "" for an empty text, or delete the line.')


def _merged_jobs(raw: dict[str, Raw]) -> dict[str, Raw]:
    """`defaults` under each job: the job's key wins; mappings are merged one level deep."""
    defaults = raw.get("defaults", {})
    jobs = raw["jobs"]
    assert isinstance(defaults, dict)
    assert isinstance(jobs, dict)
    return {name: _merged(defaults, job) for name, job in jobs.items() if isinstance(job, dict)}


def _merged(defaults: dict[str, Raw], job: dict[str, Raw]) -> dict[str, Raw]:
    merged = {**defaults, **job}
    for key in _MERGED:
        base, own = defaults.get(key), job.get(key)
        if isinstance(base, dict) and isinstance(own, dict):
            merged[key] = {**base, **own}
    return merged


def _faults(exc: ValidationError, root: Table) -> Iterator[_Fault]:
    for detail in exc.errors(include_url=False, include_input=False):
        kind = detail["type"]
        is_key = detail["loc"][-1] == "[key]" and kind != "extra_forbidden"  # a file may have a key of that name
        path = detail["loc"][:-1] if is_key else detail["loc"]
        key, node = _find(root, path)
        if kind == "extra_forbidden":
            assert key is not None
            yield _Fault(key, partial(_unknown_key, str(path[-1]), _level(path[:-1])))
        elif kind == "missing":
            yield _Fault(_TOP if len(path) == 1 else key or node, partial(_missing, path))
        elif is_key and key is not None:
            yield _Fault(key, partial(_wrong, detail, ()))
        elif not (isinstance(node, Text) and node.is_null):  # `_nulls` tells of those
            yield _Fault(node, partial(_wrong, detail, path))


_TOP = Text("", is_null=False, line=1, column=1)


def _wrong(detail: ErrorDetails, path: tuple[int | str, ...], at: Node) -> ConfigError:
    return _at(at, *_sentences(detail, _shown(_name(path)) if path else ""))


def _sentences(detail: ErrorDetails, name: str) -> tuple[str, str]:
    """Message and hint for a value, or for a key when it has no name."""
    kind = detail["type"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    if kind == "value_error":
        told = str(context["error"])
        message, _, hint = told.rpartition(". ") if ". " in told else (told, "", "")
        return (f"{name}: {message}" if name else message), (f"{hint}." if hint else "")
    if kind in ("model_type", "mapping_type", "dict_type", "model_attributes_type"):
        return f"{name} must hold keys and values", "Write `key: value` lines, indented, below it."
    if kind in ("tuple_type", "list_type"):
        return f"{name} must be a list", "Write each item as `- item` on a line of its own."
    if kind == "too_short":
        return f"{name} is empty", "Write at least one."
    if kind == "too_long":
        return f"{name} has more than {context['max_length']} items", "Remove some."
    return f"{name}: {detail['msg']}", ""


def _missing(path: tuple[int | str, ...], at: Node) -> ConfigError:
    key = path[-1]
    if len(path) == 1:
        hint = "Write `version: 1` in the first line." if key == "version" else "Write a job below `jobs:`."
        return _at(at, f"`{key}` is missing", hint)
    examples = {
        "image": "Write `image: name@sha256:…`.",
        "run": "Write `run: ` and a command.",
        "id": "Write `id: organisation/name`.",
        "revision": "Write `revision: ` and the 40-digit commit id of the model.",
    }
    return _at(at, f"{_shown(_name(path[:-1]))} has no `{key}`", examples.get(str(key), ""))


def _unknown_key(key: str, level: str, at: Node) -> ConfigError:
    if any(key in keys for keys in PLANNED_KEYS.values()):
        return NotInThisVersion(
            f"the key `{key}` is not in this version", line=at.line, column=at.column, hint="Delete it for now."
        )
    allowed = _KEYS[level]
    meant = _close(key, allowed) or _MEANT.get(_close(key, _MEANT, cutoff=0.8))
    return ConfigError(
        f"unknown key {_shown(key)}" + (f"; did you mean `{meant}`?" if meant else ""),
        line=at.line,
        column=at.column,
        hint="Allowed here: " + ", ".join(f"`{name}`" for name in allowed) + ".",
    )


_LONGEST_TYPO = 40
"""Characters; finding what is alike takes their square."""


def _close(word: str, words: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The most alike, or an empty text."""
    import difflib  # most files have no fault

    if len(word) > _LONGEST_TYPO:
        return ""
    return next(iter(difflib.get_close_matches(word, list(words), n=1, cutoff=cutoff)), "")


def _level(path: tuple[int | str, ...]) -> str:
    """Which table of keys applies at this place."""
    if not path:
        return "file"
    inner = path[1:] if path[0] == "defaults" else path[2:]
    if not inner:
        return "job"
    return "model" if inner[0] == "models" else str(inner[0])


def _find(root: Table, path: tuple[int | str, ...]) -> tuple[Text | None, Node]:
    """The key and value at the end of the path, or the last that exist (for a missing key: its parent)."""
    key: Text | None = None
    node: Node = root
    for part in path:
        match node:
            case Table():
                found = node.find(part)
                if found is None:
                    break
                key, node = found
            case Items(items) if isinstance(part, int):
                key, node = None, items[part]
            case _:
                break
    return key, node


def _name(path: tuple[int | str, ...]) -> str:
    """`jobs.smoke.models[0].id`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _shown(name: str) -> str:
    printable = quoted(name)[1:-1].replace("`", "'")
    return f"`{printable}`"
