"""`.gpurun.yml` becomes a Config, or an error that says where and what to do.

Four steps: readable text (`source`), a tree that knows positions (`nodes`), the models of `domain.config` over it,
and `defaults` merged into each job. The models decide what is allowed; this module says it in sentences.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
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
from gpurun.plan.nodes import Items, Node, Table, Text, read_nodes
from gpurun.plan.source import quote, readable

Raw: TypeAlias = "str | list[Raw] | dict[str, Raw]"

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
_MERGED = ("env", "resources", "limits", "checkout", "retry", "trigger")

_PLACES = {
    "file": "the top level",
    "job": "a job",
    "model": "`models`",
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


def load(file: str | bytes | None) -> Config:
    """The file's meaning; None stands for no file.

    Raises: ConfigError (NotInThisVersion) for the first fault in it, which has those below it in `others`.
    """
    found = check(file)
    if isinstance(found, Config):
        return found
    first, *others = found
    first.others = tuple(others)
    raise first


def check(file: str | bytes | None) -> Config | tuple[ConfigError, ...]:
    """The file's meaning, or every fault in it from top to bottom (one when it is not readable YAML)."""
    try:
        return _config(_root(file))
    except ConfigError as exc:
        return (_whole_sentence(exc),)
    except _Faults as exc:
        return tuple(_whole_sentence(error) for error in exc.errors)


def policy_of(file: str | bytes | None) -> PolicyKeys:
    """The policy of a file in which nothing else need be right: an old job must not lift it.

    Raises: ConfigError when the file cannot be read, or the policy has a fault.
    """
    if file is None:
        return PolicyKeys()
    try:
        root = _root(file)
    except ConfigError as exc:
        raise _whole_sentence(exc) from None
    node = _value(root, "policy")
    if node is None:
        return PolicyKeys()
    try:
        return PolicyKeys.model_validate(_raw(node))
    except ValidationError as exc:
        faults = [_faulty(detail, ("policy", *detail["loc"]), root) for detail in _details(exc)]
        raise _whole_sentence(_in_order(error for error in faults if error)[0]) from None


def explain(error: ConfigError, file: str | bytes | None) -> str:
    """For a terminal: place and message, the line with a caret, what to do."""
    text = file.decode("utf-8", "replace") if isinstance(file, bytes) else file or ""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return "\n".join(part for part in (str(error), quote(text, error.line, error.column), error.hint) if part)


def tree(file: str | bytes | None) -> Table:
    """The file with its positions, whatever its keys. Raises ConfigError when it cannot be read."""
    return _root(file)


def resources_line(file: str | bytes | None, job: str) -> int:
    """Where the job's `resources` stand, or those of `defaults`; 0 when neither has any. The file is a good one."""
    root = _root(file)
    jobs = _value(root, "jobs")
    for keys in (_value(jobs, job), _value(root, "defaults")):
        for key, _ in keys.entries if isinstance(keys, Table) else ():
            if key.value == "resources":
                return key.line
    return 0


def _value(table: Node | None, name: str) -> Node | None:
    entries = table.entries if isinstance(table, Table) else ()
    return next((value for key, value in entries if key.value == name), None)


def job_names(config: Config) -> tuple[str, ...]:
    """In the order of the file."""
    return tuple(config.jobs)


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
        raise _Faults(_in_order([*_faults(exc, root), *nulls])) from None
    if nulls:
        raise _Faults(_in_order(nulls))
    try:
        merged = {"version": raw["version"], "policy": raw.get("policy", {}), "jobs": _merged_jobs(raw)}
        return Config.model_validate(merged)
    except ValidationError as exc:
        raise _Faults(_in_order(_faults(exc, root))) from None


def _in_order(errors: Any) -> tuple[ConfigError, ...]:
    """From top to bottom, one for each place."""
    first: dict[tuple[int, int], ConfigError] = {}
    for error in errors:
        first.setdefault((error.line, error.column), error)
    return tuple(first[place] for place in sorted(first))


def _raw(node: Node) -> Raw:
    match node:
        case Text(value):
            return value
        case Items(items):
            return [_raw(item) for item in items]
        case Table(entries):
            return {key.value: _raw(value) for key, value in entries}


def _nulls(node: Node, key: Node) -> Iterator[ConfigError]:
    match node:
        case Text(value, is_null=True):
            at = node if value else key
            yield ConfigError(
                f"{_shown(key.value) if isinstance(key, Text) else 'this item'} has no value",
                line=at.line,
                column=at.column,
                hint='Write "" for an empty text, or delete the line.',
            )
        case Items(items):
            for item in items:
                yield from _nulls(item, key)
        case Table(entries):
            for name, inner in entries:
                yield from _nulls(inner, name)


def _merged_jobs(raw: dict[str, Raw]) -> dict[str, Raw]:
    """`defaults` under each job: the job's key wins; mappings are merged one level deep."""
    defaults = raw.get("defaults", {})
    jobs = raw["jobs"]
    assert isinstance(defaults, dict)
    assert isinstance(jobs, dict)
    return {name: merged(defaults, job) for name, job in jobs.items() if isinstance(job, dict)}


def merged(defaults: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a job with those of `defaults` under them; whatever stands behind the keys goes along."""
    both = {**defaults, **job}
    for key in _MERGED:
        base, own = defaults.get(key), job.get(key)
        if isinstance(base, dict) and isinstance(own, dict):
            both[key] = {**base, **own}
    return both


def _faults(exc: ValidationError, root: Table) -> Iterator[ConfigError]:
    for detail in _details(exc):
        fault = _faulty(detail, detail["loc"], root)
        if fault is not None:
            yield fault


def _details(exc: ValidationError) -> list[ErrorDetails]:
    return exc.errors(include_url=False, include_input=False)


def _faulty(detail: ErrorDetails, loc: tuple[int | str, ...], root: Table) -> ConfigError | None:
    """None when `_nulls` tells of it."""
    path = tuple(part for part in loc if part != "[key]")
    key, node = _find(root, path)
    kind = detail["type"]
    if kind == "extra_forbidden":
        assert key is not None
        return _unknown_key(str(path[-1]), _level(path[:-1]), key)
    if kind == "missing":
        return _missing(path, key or node)
    if loc[-1] == "[key]" and key is not None:
        message, hint = _sentences(detail, "")
        return ConfigError(message, line=key.line, column=key.column, hint=hint)
    if isinstance(node, Text) and node.is_null:
        return None
    message, hint = _sentences(detail, _shown(_name(path)))
    return ConfigError(message, line=node.line, column=node.column, hint=hint)


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


def _missing(path: tuple[int | str, ...], at: Text | Node) -> ConfigError:
    key = path[-1]
    if len(path) == 1:
        hint = "Write `version: 1` in the first line." if key == "version" else "Write a job below `jobs:`."
        return ConfigError(f"`{key}` is missing", line=1, column=1, hint=hint)
    examples = {
        "image": "Write `image: name:tag`, and pin it with `gpurun lock`.",
        "run": "Write `run: ` and a command.",
        "id": "Write `id: organisation/name`.",
        "jobs": "Write `jobs: [smoke]` with the names of the jobs that may use it.",
    }
    return ConfigError(
        f"{_shown(_name(path[:-1]))} has no `{key}`", line=at.line, column=at.column, hint=examples.get(str(key), "")
    )


def _unknown_key(key: str, level: str, at: Text) -> ConfigError:
    if key in PLANNED_KEYS.get(level, ()):
        return NotInThisVersion(
            f"the key `{key}` is not in this version", line=at.line, column=at.column, hint="Delete it for now."
        )
    allowed = _KEYS[level]
    elsewhere = next((place for place, keys in PLANNED_KEYS.items() if key in keys), "")
    meant = "" if elsewhere else _close(key, allowed) or _MEANT.get(_close(key, _MEANT, cutoff=0.8))
    more = f", and `{key}` under {_PLACES[elsewhere]} is not in this version" if elsewhere else ""
    return ConfigError(
        f"unknown key {_shown(key)}" + (f"; did you mean `{meant}`?" if meant else more),
        line=at.line,
        column=at.column,
        hint="Allowed here: " + ", ".join(f"`{name}`" for name in allowed) + ".",
    )


def _close(word: str, words: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The most alike, or an empty text."""
    return next(iter(difflib.get_close_matches(word, list(words), n=1, cutoff=cutoff)), "")


def _level(path: tuple[int | str, ...]) -> str:
    """Which table of keys applies at this place."""
    match path:
        case ("policy", "secrets", _, *_):
            return "secret"
        case ("policy", "max", *_):
            return "max"
        case ("defaults", part, *_) | ("jobs", _, part, *_):
            return "model" if part == "models" else str(part)
        case ("defaults",) | ("jobs", _):
            return "job"
    return str(path[0]) if path else "file"


def _find(root: Table, path: tuple[int | str, ...]) -> tuple[Text | None, Node]:
    """The key and value at the end of the path, or the last that exist (for a missing key: its parent)."""
    key: Text | None = None
    node: Node = root
    for part in path:
        match node:
            case Table(entries):
                found = next(((k, v) for k, v in entries if k.value == part), None)
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
