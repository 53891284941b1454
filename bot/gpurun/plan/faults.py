"""What is wrong with a file, in sentences, each at its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeAlias

from gpurun.domain.config import PLANNED_KEYS, File
from gpurun.domain.errors import ConfigError, NotInThisVersion
from gpurun.domain.part import Key, Many, Part, Value
from gpurun.domain.quantity import quoted
from gpurun.plan.nodes import Node, Text

Path: TypeAlias = "tuple[str | int, ...]"
"""Keys and numbers of items, from the top of the file."""
Sentence: TypeAlias = Callable[[Node], ConfigError]
"""Made when it is told, for a place: what was meant takes a while to find."""
Fault: TypeAlias = "tuple[Node, Sentence]"

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


def in_order(faults: Iterable[Fault]) -> tuple[ConfigError, ...]:
    """From top to bottom, one for each place."""
    first: dict[tuple[int, int], Fault] = {}
    rest = iter(faults)
    for fault in islice(rest, MAX_PLACED_FAULTS):
        first.setdefault((fault[0].line, fault[0].column), fault)
    inside = [first[place] for place in sorted(first)]
    told = [sentence(at) for at, sentence in inside[:MAX_FAULTS]]
    if len(inside) > MAX_FAULTS:
        n_more = len(inside) - MAX_FAULTS
        more = f"{n_more} more fault" + ("s are" if n_more > 1 else " is")
        least = "at least " if any(rest) else ""
        told.append(fault_at(inside[MAX_FAULTS][0], f"{least}{more} here and below", "Correct those above first."))
    return tuple(told)


def fault_at(node: Node, message: str, hint: str) -> ConfigError:
    """The error at that place."""
    return ConfigError(message, line=node.line, column=node.column, hint=hint)


def whole_sentence(error: ConfigError) -> ConfigError:
    """People see message and hint in one line."""
    stop = "" if error.message.endswith((".", "?")) else "."
    return type(error)(error.message + stop, line=error.line, column=error.column, hint=error.hint)


_AN_EMPTY_TEXT = 'Write "" for an empty text, or delete the line.'
_EXAMPLES = {
    "version": "Write `version: 1`.",
    "jobs": "Write a job below `jobs:`.",
    "image": "Write `image: name:tag`, and pin it with `gpurun lock`; or `build: .` for a Dockerfile.",
    "run": "Write `run: ` and a command.",
    "id": "Write `id: organisation/name`.",
}
"""What to write for keys that must be there."""


def to_write(name: str, key: Key) -> str:
    """What to do about that key of a part when nothing stands behind it."""
    or_delete = "" if key.is_required else ", or delete the line"
    if not isinstance(key.form, Value):
        one = f" such as `{name}: {key.examples[0]}`" if isinstance(key.form, Many) and key.examples else " below it"
        return f"Write what belongs to it{one}{or_delete}." if name != "jobs" or one != " below it" else _EXAMPLES[name]
    if name in _EXAMPLES:
        return _EXAMPLES[name]
    try:
        key.form.read("")
    except ValueError:
        one = f" such as `{name}: {key.examples[0]}`" if key.examples else ""
        return f"Write a value{one}{or_delete}."
    return _AN_EMPTY_TEXT


def no_value(key: Node, hint: str | None, at: Node) -> ConfigError:
    """Nothing is written behind that key."""
    what = _shown(key.value) if isinstance(key, Text) else "this item"
    return fault_at(at, f"{what} has no value", hint or _AN_EMPTY_TEXT)


def wrong(told: str, path: Path, at: Node) -> ConfigError:
    """What a reader says of a value, or of a key when there is no path."""
    message, _, hint = told.rpartition(". ") if ". " in told else (told, "", "")
    subject = _named(path) if message.startswith("is ") else f"{_named(path)}:"
    return fault_at(at, f"{subject} {message}" if path else message, f"{hint}." if hint else "")


def no_table(path: Path, hint: str | None, at: Node) -> ConfigError:
    """Something else stands where keys must."""
    return fault_at(
        at, f"{_named(path)} must hold keys and values", hint or "Write `key: value` lines, indented, below it."
    )


_ONE_VALUE = {"resources": "gpu", "limits": "max_duration", "retry": "attempts"}
"""What people mean who write a single value for all of the keys."""


def no_part(path: Path, part: type[Part], at: Node) -> ConfigError:
    """Something else stands where the keys of that part must."""
    key = _ONE_VALUE.get(part.PLACE)
    if key is not None and isinstance(at, Text) and not at.is_null and len(at.value) <= _LONGEST_TYPO:
        return no_table(path, f"Write `{part.PLACE}: {{{key}: {_shown(at.value)[1:-1]}}}`.", at)
    if part.PLACE == "trigger":
        return no_table(path, "Write `trigger: {comment: true}`; what else starts jobs is not in this version.", at)
    return no_table(path, part.HINT, at)


def no_list(path: Path, hint: str | None, at: Node) -> ConfigError:
    """Something else stands where a list must."""
    return fault_at(at, f"{_named(path)} must be a list", hint or "Write each item as `- item` on a line of its own.")


def empty(path: Path, at: Node) -> ConfigError:
    """Too few things are in a list or mapping."""
    return fault_at(at, f"{_named(path)} is empty", "Write at least one.")


def too_many(most: int, path: Path, at: Node) -> ConfigError:
    """Too many items are in a list."""
    return fault_at(at, f"{_named(path)} has more than {most} items", "Remove some.")


def missing(key: str, path: Path, at: Node) -> ConfigError:
    """The part at that path lacks a key."""
    if not path:
        hint = "Write `version: 1` in the first line." if key == "version" else "Write a job below `jobs:`."
        return fault_at(at, f"`{key}` is missing", hint)
    examples = {**_EXAMPLES, "jobs": "Write `jobs: [smoke]` with the names of the jobs that may use it."}
    return fault_at(at, f"{_named(path)} has no `{key}`", examples.get(key, ""))


def unknown_key(key: str, part: type[Part], at: Node) -> ConfigError:
    """The part has no such key, or not yet."""
    if key in PLANNED_KEYS.get(part.PLACE, ()):
        return NotInThisVersion(
            f"the key `{key}` is not in this version", line=at.line, column=at.column, hint="Delete it for now."
        )
    allowed = part.KEYS
    elsewhere = next((place for place, keys in PLANNED_KEYS.items() if key in keys), "")
    planned = _close(key, [*allowed, *PLANNED_KEYS.get(part.PLACE, ())])
    meant = "" if elsewhere else _close(key, allowed) or _MEANT.get(_close(key, _MEANT, cutoff=0.8))
    more = f", and `{key}` under {_PLACES[elsewhere]} is not in this version" if elsewhere else ""
    if not elsewhere and planned and planned not in allowed:
        meant, more = "", f"; did you mean `{planned}`, which is not in this version?"
    if part is not File and key in File.KEYS:
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


def _named(path: Path) -> str:
    """`jobs.smoke.models[0].id`, to be shown."""
    return _shown("".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix("."))


def _shown(name: str) -> str:
    printable = quoted(name)[1:-1].replace("`", "'")
    return f"`{printable}`"
