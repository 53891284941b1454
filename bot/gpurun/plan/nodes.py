"""YAML text becomes a tree of mappings, lists and texts that knows where everything stands.

Built from the parser's events, so that nothing is ever expanded, guessed or looked up: a scalar is its text as it was
written (`NO`, `3.10` and `1e-4` stay that), and aliases, anchors, merge keys, tags, directives and second documents
are refused. Depth and count are checked while reading: 60,000 brackets cost the parser minutes, here they cost 17.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
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
from gpurun.domain.quantity import quoted

MAX_DEPTH = 16
MAX_NODES = 2_000
"""Keys and values of a file; the pure Python parser reads about 30,000 a second."""

_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
"""What escapes can smuggle past the check of the file's own characters, and neither a process nor a database takes."""

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar as it was written."""

    value: str
    is_null: bool
    """Written without quotes as nothing, `~` or `null`."""
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping, in the order of the file."""

    entries: tuple[tuple[Text, Node], ...]
    line: int
    column: int


Node = Text | Items | Table


@dataclass(slots=True)
class _Reader:
    events: Iterator[Event]
    nodes: int = field(default=0)

    def next(self) -> Event:
        try:
            return next(self.events)
        except YAMLError as exc:
            raise _syntax_error(exc) from exc
        except (ValueError, OverflowError) as exc:  # "\\U00110000" names no character; the scanner does not say where
            raise ConfigError("a `\\U` escape names no character", hint="Correct it, or use single quotes.") from exc


def read_nodes(text: str) -> Node | None:
    """The one document of the text; None when it holds none. Raises ConfigError with line and column."""
    reader = _Reader(YAML(typ="safe", pure=True).parse(text))
    root: Node | None = None
    while True:
        event = reader.next()
        if isinstance(event, DocumentStartEvent):
            _check_document(event, is_second=root is not None)
            root = _node(reader, reader.next(), depth=1)
        elif isinstance(event, StreamEndEvent):
            return root


def _check_document(event: DocumentStartEvent, *, is_second: bool) -> None:
    if is_second:
        raise _at("a second document starts here; the file holds one", event, "Delete the line `---`.")
    if event.version or event.tags:
        raise _at("`%` directives are not allowed", event, "Delete the line; the file is read as YAML 1.2.")


def _node(reader: _Reader, event: Event, *, depth: int) -> Node:
    reader.nodes += 1
    if reader.nodes > MAX_NODES:
        raise _at(f"the file has more than {MAX_NODES:,} keys and values", event, "Split it, or move lists into files.")
    if depth > MAX_DEPTH:
        raise _at(f"this is nested more than {MAX_DEPTH} deep", event, "No key of this file needs that.")
    _check_plain(event)
    line, column = _position(event)
    if isinstance(event, ScalarEvent):
        is_null = event.style is None and event.value in _NULLS
        return Text(_unescaped(event), is_null, line, column)
    if isinstance(event, SequenceStartEvent):
        return Items(tuple(_items(reader, depth)), line, column)
    assert isinstance(event, MappingStartEvent)
    return Table(tuple(_entries(reader, depth)), line, column)


def _items(reader: _Reader, depth: int) -> Iterator[Node]:
    while not isinstance(event := reader.next(), SequenceEndEvent):
        yield _node(reader, event, depth=depth + 1)


def _entries(reader: _Reader, depth: int) -> Iterator[tuple[Text, Node]]:
    seen: dict[str, Text] = {}
    while not isinstance(event := reader.next(), MappingEndEvent):
        key = _node(reader, event, depth=depth + 1)
        if not isinstance(key, Text):
            raise ConfigError("a key must be one text", line=key.line, column=key.column, hint="Remove the `?`.")
        if key.value == "<<":
            raise _refused("merge keys (`<<`)", key.line, key.column)
        first = seen.setdefault(key.value, key)
        if first is not key:
            raise ConfigError(
                f"the key `{quoted(key.value)[1:-1]}` stands here and in line {first.line}",
                line=key.line,
                column=key.column,
                hint="Keep one of the two.",
            )
        yield key, _node(reader, reader.next(), depth=depth + 1)


def _unescaped(event: ScalarEvent) -> str:
    """The value; the two halves of a character that JSON escapes in pairs are put together."""
    value: str = event.value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if _NO_TEXT.search(value):
        raise _at("an escape stands for NUL or half a character", event, "No command or variable can hold that.")
    return value


def _check_plain(event: Event) -> None:
    line, column = _position(event)
    if isinstance(event, AliasEvent):
        raise _refused(f"aliases (`*{event.anchor}`)", line, column)
    assert isinstance(event, NodeEvent)
    if event.anchor:
        raise _refused(f"anchors (`&{event.anchor}`)", line, column)
    tag = getattr(event, "ctag", None)
    if tag is not None:
        raise _refused("tags (`!…`)", line, column)


def _refused(what: str, line: int, column: int) -> ConfigError:
    return ConfigError(
        f"{what} are not allowed",
        line=line,
        column=column,
        hint="Write the value out; `defaults:` holds what all jobs share.",
    )


def _at(message: str, event: Event, hint: str) -> ConfigError:
    line, column = _position(event)
    return ConfigError(message, line=line, column=column, hint=hint)


def _position(event: Event) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


_SYNTAX = (
    ("'\\t' that cannot start", "a tab stands where spaces must", "Indent with spaces."),
    ("that cannot start any token", "this character cannot start a value", "Put the value in quotes."),
    (
        "mapping values are not allowed",
        "a `:` stands where no key can be",
        "Put the value in quotes, or check the indentation.",
    ),
    ("unknown escape character", "this escape is unknown", "Double the backslash, or use single quotes."),
    ("unexpected end of stream", "the quote that was opened before is never closed", "Close it."),
    ("expected ',' or '}'", "a `,` or `}` is missing before this", "Close the bracket."),
    ("expected ',' or ']'", "a `,` or `]` is missing before this", "Close the bracket."),
    ("expected <block end>", "this does not belong to the block before it", "Check the indentation."),
    ("could not find expected ':'", "a `:` is missing behind the key", "Write `key: value`."),
    ("expected the node content", "the file ends inside brackets", "Close the bracket."),
)


def _syntax_error(exc: YAMLError) -> ConfigError:
    line, column, problem = 1, 1, "it cannot be read"
    if isinstance(exc, MarkedYAMLError):
        mark = exc.problem_mark or exc.context_mark
        if mark is not None:
            line, column = mark.line + 1, mark.column + 1
        problem = str(exc.problem or exc.context or problem)
    for part, message, hint in _SYNTAX:
        if part in problem:
            return ConfigError(f"not valid YAML: {message}", line=line, column=column, hint=hint)
    return ConfigError(f"not valid YAML: {problem}", line=line, column=column, hint="Check quotes and indentation.")
