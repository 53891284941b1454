"""What is wrong with a file, in sentences, each at its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpurun.domain.config import (
    PLANNED_KEYS,
    CheckoutKeys,
    File,
    JobKeys,
    LimitKeys,
    MaxKeys,
    ModelKeys,
    PolicyKeys,
    ResourceKeys,
    RetryKeys,
    SecretRule,
    TriggerKeys,
)
from gpurun.domain.errors import ConfigError, NotInThisVersion
from gpurun.domain.quantity import quoted
from gpurun.plan.nodes import Items, Node, Table, Text

_KEYS = {
    "file": tuple(File.model_fields),
    "job": tuple(JobKeys.model_fields),
    "limits": tuple(LimitKeys.model_fields),
    "resources": tuple(ResourceKeys.model_fields),
    "checkout": tuple(CheckoutKeys.model_fields),
    "retry": tuple(RetryKeys.model_fields),
    "trigger": tuple(TriggerKeys.model_fields),
    "policy": tuple(PolicyKeys.model_fields),
    "max": tuple(MaxKeys.model_fields),
    "secret": tuple(SecretRule.model_fields),
    "model": tuple(ModelKeys.model_fields),
}
MAX_FAULTS = 50
"""So many are told at once."""
MAX_PLACED_FAULTS = 400
"""So many get a place, of which the topmost are told: a hostile file has thousands."""
_PLACES = {
    "file": "the top level",
    "job": "a job",
    "model": "`models` and `datasets`",
    **{place: f"`{place}`" for place in ("trigger", "limits", "retry", "resources", "checkout", "policy")},
    "max": "`policy: {max: …}`",
}
"""How the levels of `PLANNED_KEYS` are called."""

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
    "on": "trigger",
    "triggers": "trigger",
    "cwd": "workdir",
    "working_directory": "workdir",
    "secret": "secrets",
    "retries": "retry: {attempts: …}",
    "shm": "shm_size",
    "mem": "memory",
    "cpus": "cpu",
}
"""What people write for our keys."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Its sentence is made when it is told: what was meant takes a while to find."""

    at: Node
    sentence: Callable[[Node], ConfigError]


def in_order(faults: Iterable[Fault]) -> tuple[ConfigError, ...]:
    """From top to bottom, one for each place."""
    first: dict[tuple[int, int], Fault] = {}
    rest = iter(faults)
    for fault in islice(rest, MAX_PLACED_FAULTS):
        first.setdefault((fault.at.line, fault.at.column), fault)
    inside = [first[place] for place in sorted(first)]
    told = [fault.sentence(fault.at) for fault in inside[:MAX_FAULTS]]
    if len(inside) > MAX_FAULTS:
        n_more = len(inside) - MAX_FAULTS
        more = f"{n_more} more fault" + ("s are" if n_more > 1 else " is")
        least = "at least " if any(rest) else ""
        told.append(fault_at(inside[MAX_FAULTS].at, f"{least}{more} here and below", "Correct those above first."))
    return tuple(told)


def fault_at(node: Node, message: str, hint: str) -> ConfigError:
    """The error at that place."""
    return ConfigError(message, line=node.line, column=node.column, hint=hint)


def whole_sentence(error: ConfigError) -> ConfigError:
    """People see message and hint in one line."""
    stop = "" if error.message.endswith((".", "?")) else "."
    return type(error)(error.message + stop, line=error.line, column=error.column, hint=error.hint)


def without_value(node: Node, key: Node, above: Node | None = None) -> Iterator[Fault]:
    """Keys and items at which nothing is written. `above`: the key of the table that `key` is in."""
    match node:
        case Text(value, is_null=True):
            hint = _NO_JOB if isinstance(above, Text) and above.value == "jobs" else _NO_TEXT
            yield Fault(node if value else key, partial(_no_value, key, hint))
        case Items(items):
            for item in items:
                yield from without_value(item, key)
        case Table(entries):
            for name, inner in entries:
                yield from without_value(inner, name, key)


_NO_TEXT = 'Write "" for an empty text, or delete the line.'
_NO_JOB = "Write the keys of the job below it, `image` and `run` at least, or delete the line."


def _no_value(key: Node, hint: str, at: Node) -> ConfigError:
    what = _shown(key.value) if isinstance(key, Text) else "this item"
    return fault_at(at, f"{what} has no value", hint)


def faults(exc: ValidationError, root: Table, *, under: tuple[str, ...] = ()) -> Iterator[Fault]:
    """`under`: where in the file what was validated stands."""
    for detail in exc.errors(include_url=False, include_input=False):
        kind, loc = detail["type"], (*under, *detail["loc"])
        is_key = loc[-1] == "[key]" and kind != "extra_forbidden"  # a file may have a key of that name
        path = loc[:-1] if is_key else loc
        key, node = _find(root, path)
        if kind == "extra_forbidden":
            assert key is not None
            yield Fault(key, partial(_unknown_key, str(path[-1]), _level(path[:-1])))
        elif kind == "missing":
            yield Fault(_TOP if len(path) == 1 else key or node, partial(_missing, path))
        elif is_key and key is not None:
            yield Fault(key, partial(_wrong, detail, ()))
        elif not (isinstance(node, Text) and node.is_null):  # `without_value` tells of those
            yield Fault(node, partial(_wrong, detail, path))


_TOP = Text("", is_null=False, line=1, column=1)


def _wrong(detail: ErrorDetails, path: tuple[int | str, ...], at: Node) -> ConfigError:
    message, hint = _sentences(detail, _shown(_name(path)) if path else "")
    match detail["type"], path[-2:]:
        case "model_type", ("models", int()):
            hint = "Write `{id: organisation/name}`."
        case "tuple_type", (_, "secrets") if path[0] != "policy":
            hint = "Write the names only, `[NAME]`: values do not belong in this file."
    return fault_at(at, message, hint)


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
        return fault_at(at, f"`{key}` is missing", hint)
    examples = {
        "image": "Write `image: name:tag`, and pin it with `gpurun lock`.",
        "run": "Write `run: ` and a command.",
        "id": "Write `id: organisation/name`.",
        "jobs": "Write `jobs: [smoke]` with the names of the jobs that may use it.",
    }
    return fault_at(at, f"{_shown(_name(path[:-1]))} has no `{key}`", examples.get(str(key), ""))


def _unknown_key(key: str, level: str, at: Node) -> ConfigError:
    if key in PLANNED_KEYS.get(level, ()):
        return NotInThisVersion(
            f"the key `{key}` is not in this version", line=at.line, column=at.column, hint="Delete it for now."
        )
    allowed = _KEYS[level]
    elsewhere = next((place for place, keys in PLANNED_KEYS.items() if key in keys), "")
    meant = "" if elsewhere else _close(key, allowed) or _MEANT.get(_close(key, _MEANT, cutoff=0.8))
    more = f", and `{key}` under {_PLACES[elsewhere]} is not in this version" if elsewhere else ""
    if level != "file" and key in _KEYS["file"]:
        more = ", which belongs at the top level of the file"
    return ConfigError(
        f"unknown key {_shown(key)}" + (f"; did you mean `{meant}`?" if meant else more),
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
    match path:
        case ("policy", "secrets", _, *_):
            return "secret"
        case ("policy", "max", *_):
            return "max"
        case ("defaults", part, *_) | ("jobs", _, part, *_):
            return "model" if part in ("models", "datasets") else str(part)
        case ("defaults",) | ("jobs", _):
            return "job"
    return str(path[0]) if path else "file"


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
