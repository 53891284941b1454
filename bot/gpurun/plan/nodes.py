"""YAML text becomes a tree of mappings, lists and texts that knows where everything stands.

Built from the events of libyaml, so that nothing is ever expanded, guessed or looked up: a scalar is its text as it
was written (`NO`, `3.10` and `1e-4` stay that), and aliases, anchors, merge keys, tags, directives and second
documents are refused. Depth and count are checked while reading, so no file costs more than its first 2,000 nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from gpurun.domain.errors import ConfigError
from gpurun.plan.events import WRITE_OUT, Events, NestedFarTooDeep, shown, start_of
from gpurun.plan.source import position

MAX_DEPTH = 16
MAX_NODES = 2_000
"""Keys and values of a file. Each costs a few microseconds and some hundred bytes."""

MAX_REFUSED = 401
"""More than get a place: `plan.faults` says that there are others."""
MERGE = "<<"

_TOO_DEEP = f"this is nested more than {MAX_DEPTH} deep"
_NOT_NEEDED = "No key of this file needs that."

_NO_TEXT = "[\x00\ud800-\udfff]"
"""What escapes can smuggle past the check of the file's own characters, and neither a process nor a database takes."""

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class Text(NamedTuple):
    """A scalar as it was written."""

    value: str
    is_null: bool
    """Written without quotes as nothing, `~` or `null`."""
    line: int
    column: int


class Items(NamedTuple):
    """A list."""

    items: tuple[Node, ...]
    line: int
    column: int


class Table(NamedTuple):
    """A mapping, in the order of the file."""

    entries: tuple[tuple[Text, Node], ...]
    line: int
    column: int

    def find(self, name: str) -> tuple[Text, Node] | None:
        """The entry of that key."""
        return next((entry for entry in self.entries if entry[0].value == name), None)


Node = Text | Items | Table


def value_of(node: Node | None, name: str) -> Node | None:
    """What stands behind that key; None where there is no such key, or nothing that has keys."""
    found = node.find(name) if isinstance(node, Table) else None
    return found and found[1]


class Read(NamedTuple):
    """A document, as far as it could be read."""

    root: Node | None
    """To be used only while there are no faults. With some it still has everything that stands there: a repeated key
    twice, the text `*a` for an alias, a merge key as a key."""
    faults: tuple[ConfigError, ...]
    """What is refused, in the order of the text. Where reading could not go on the last one says why."""


class _Reader:
    def __init__(self, events: Events) -> None:
        self.events = events
        self.nodes = 0
        self.faults: list[ConfigError] = []

    def refuse(self, fault: ConfigError) -> None:
        """Reading goes on: what stands there costs no more than other nodes, and is not used."""
        if len(self.faults) < MAX_REFUSED:
            self.faults.append(fault)


def read_nodes(text: str) -> Node | None:
    """The one document of the text; None when it holds none. Raises ConfigError with line and column."""
    found = read_all(text)
    if found.faults:
        raise found.faults[0]
    return found.root


def read_all(text: str) -> Read:
    """The one document of the text, with everything that is refused in it."""
    faults: list[ConfigError] = []
    try:
        reader = _Reader(Events(text))
        faults = reader.faults
        return Read(_document(reader), tuple(faults))
    except ConfigError as fault:
        return Read(None, (*faults, fault))
    except NestedFarTooDeep as exc:
        # with nothing to read ahead it comes to the node that is too deep
        shorter = read_all(text[: exc.index])
        if shorter.root is None and shorter.faults:
            return shorter
        line, column = position(text, exc.index)
        return Read(None, (*shorter.faults, ConfigError(_TOO_DEEP, line=line, column=column, hint=_NOT_NEEDED)))


def _document(reader: _Reader) -> Node | None:
    root: Node | None = None
    while not isinstance(event := reader.events.next(), StreamEndEvent):
        if isinstance(event, DocumentStartEvent):
            if root is not None:
                raise _at("a second document starts here; the file holds one", event, "Delete the line `---`.")
            root = _node(reader, reader.events.next(), depth=1)
    return root


def _node(reader: _Reader, event: Event, *, depth: int) -> Node:
    reader.nodes += 1
    if reader.nodes > MAX_NODES:
        raise _at(f"the file has more than {MAX_NODES:,} keys and values", event, "Split it, or move lists into files.")
    if depth > MAX_DEPTH:
        raise _at(_TOO_DEEP, event, _NOT_NEEDED)
    is_refused = _refused(reader, event)
    start = start_of(event)
    line, column = start.line + 1, start.column + 1
    if isinstance(event, AliasEvent):
        return Text(f"*{shown(event.anchor or '')}", is_null=False, line=line, column=column)
    if isinstance(event, ScalarEvent):
        is_null = not is_refused and not event.style and event.value in _NULLS
        return Text(_unescaped(reader.events.value(event), event), is_null, line, column)
    if isinstance(event, SequenceStartEvent):
        return Items(tuple(_items(reader, depth)), line, column)
    assert isinstance(event, MappingStartEvent)
    return Table(tuple(_entries(reader, depth)), line, column)


def _items(reader: _Reader, depth: int) -> Iterator[Node]:
    while not isinstance(event := reader.events.next(), SequenceEndEvent):
        yield _node(reader, event, depth=depth + 1)


def _entries(reader: _Reader, depth: int) -> Iterator[tuple[Text, Node]]:
    seen: dict[str, Text] = {}
    while not isinstance(event := reader.events.next(), MappingEndEvent):
        key = _node(reader, event, depth=depth + 1)
        if not isinstance(key, Text):
            raise ConfigError("a key must be one text", line=key.line, column=key.column, hint="Remove the `?`.")
        if key.value == MERGE:
            merges = "merge keys (`<<`) are not allowed"
            reader.refuse(ConfigError(merges, line=key.line, column=key.column, hint=WRITE_OUT))
        first = seen.setdefault(key.value, key)
        if first is not key:
            twice = f"the key `{shown(key.value)}` stands here and in line {first.line}"
            reader.refuse(ConfigError(twice, line=key.line, column=key.column, hint="Keep one of the two."))
        yield key, _node(reader, reader.events.next(), depth=depth + 1)


def _unescaped(value: str, event: ScalarEvent) -> str:
    """The value; the two halves of a character that JSON escapes in pairs are put together."""
    if (value.isascii() and "\0" not in value) or not re.search(_NO_TEXT, value):
        return value
    value = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if re.search(_NO_TEXT, value):
        raise _at("an escape stands for NUL or half a character", event, "No command or variable can hold that.")
    return value


def _refused(reader: _Reader, event: Event) -> bool:
    """Whether it is YAML that this file does not need."""
    assert isinstance(event, NodeEvent)
    if isinstance(event, AliasEvent):
        what = f"aliases (`*{shown(event.anchor or '')}`)"
    elif event.anchor:
        what = f"anchors (`&{shown(event.anchor)}`)"
    elif reader.events.is_tagged(event):
        what = "tags (`!…`)"
    else:
        return False
    reader.refuse(_at(f"{what} are not allowed", event, WRITE_OUT))
    return True


def _at(message: str, event: Event, hint: str) -> ConfigError:
    start = start_of(event)
    return ConfigError(message, line=start.line + 1, column=start.column + 1, hint=hint)
