"""libyaml's events of one text, one by one, with its complaints in sentences.

libyaml reads a text in C and in linear time, but for three things that are dealt with here: `%TAG` lines are compared
with each other, what may be a key is read ahead however deep it is nested, and halves of characters are refused.
"""

from __future__ import annotations

import re
from typing import cast

from yaml import MarkedYAMLError, YAMLError
from yaml.events import DocumentEndEvent, Event, NodeEvent, ScalarEvent

from gpurun.domain.errors import ConfigError
from gpurun.domain.quantity import quoted
from gpurun.plan.halves import Halves
from gpurun.plan.source import position

try:
    from yaml._yaml import CParser, Mark
except ImportError as exc:
    raise ImportError(
        "PyYAML is installed here without libyaml, and gpurun reads `.gpurun.yml` with nothing slower. "
        "Install its wheel: pip install --force-reinstall --only-binary pyyaml pyyaml"
    ) from exc

_DIRECTIVE = r"(?:[ \t]*+(?:#.*+)?+\n)*+%"
"""A `%` line where a document may start: only empty lines and comments before it."""

WRITE_OUT = "Write the value out; `defaults:` holds what all jobs share."
"""What to do about YAML that this file does not need."""

_NAME = r"[^\s,\[\]{}]*"


class NestedFarTooDeep(Exception):
    """libyaml gave up, 1,000 deep, on what it read ahead. Its events up to `index` were never seen."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class Events:
    """Raises ConfigError with line and column for what is no YAML, and for `%` directives."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._has_percent = "%" in text
        self._halves = Halves(text)
        self._refuse_directive(0)
        self._parser = CParser(self._halves.text)

    def next(self) -> Event:
        """The next one. Not to be called after the StreamEndEvent. May raise NestedFarTooDeep too."""
        try:
            event = cast("Event", self._parser.get_event())
        except YAMLError as exc:
            raise self._in_sentences(exc) from exc
        if isinstance(event, DocumentEndEvent):
            self._refuse_directive(_known(event.end_mark).index)
        return event

    def value(self, event: ScalarEvent) -> str:
        """A scalar's text, with halves of characters where escapes stand for them."""
        return self._halves.put_back(event.value)

    def is_tagged(self, event: NodeEvent) -> bool:
        """Whether a tag stands before it. Of the tag `!` libyaml does not tell, but the node begins there."""
        return getattr(event, "tag", None) is not None or self._text.startswith("!", start_of(event).index)

    def _refuse_directive(self, start: int) -> None:
        found = re.compile(_DIRECTIVE).match(self._text, start) if self._has_percent else None
        if found is not None:
            hint = "Delete the line; the file is read as YAML 1.2."
            raise self._at(found.end() - 1, "`%` directives are not allowed", hint)

    def _in_sentences(self, exc: YAMLError) -> Exception:
        if not isinstance(exc, MarkedYAMLError):
            return ConfigError("not valid YAML: it cannot be read", hint="Save it as UTF-8.")
        mark = exc.problem_mark or exc.context_mark
        assert mark is not None
        problem, context = str(exc.problem or exc.context), str(exc.context or "")
        if "exceeded maximum nesting depth" in problem:
            return NestedFarTooDeep(mark.index)
        if "tag" in (*problem.split(), *context.split()):
            return self._at((exc.context_mark or mark).index, "tags (`!…`) are not allowed", WRITE_OUT)
        if "an alias" in context or "an anchor" in context:
            return self._bad_name((exc.context_mark or mark).index)
        if "quoted scalar" in context and "unexpected" in problem:  # the text ends, or the document
            mark = exc.context_mark or mark
        at = self._text[mark.index : mark.index + 1]
        for part, character, message, hint in _SYNTAX:
            if part in problem and character in ("any", at):
                return self._at(mark.index, f"not valid YAML: {message}", hint)
        return self._at(mark.index, f"not valid YAML: {problem}", "Check quotes and indentation.")

    def _bad_name(self, index: int) -> ConfigError:
        found = re.compile(_NAME).match(self._text, index)
        assert found is not None
        what = "aliases" if found.group().startswith("*") else "anchors"
        return self._at(index, f"{what} (`{shown(found.group())}`) are not allowed", WRITE_OUT)

    def _at(self, index: int, message: str, hint: str) -> ConfigError:
        """From the index, for libyaml counts a line more at the end of a text without a last line end."""
        line, column = position(self._text, index)
        return ConfigError(message, line=line, column=column, hint=hint)


def start_of(event: Event) -> Mark:
    """Where it begins; lines and columns count from 0."""
    return _known(event.start_mark)


def _known(mark: object) -> Mark:
    assert isinstance(mark, Mark)
    return mark


def shown(text: str) -> str:
    """Short and printable, for a message."""
    return quoted(text)[1:-1]


_SYNTAX = (
    ("cannot start any token", "\t", "a tab stands where spaces must", "Indent with spaces."),
    ("found a tab character", "any", "a tab stands where spaces must", "Indent with spaces."),
    ("cannot start any token", "any", "this character cannot start a value", "Put the value in quotes."),
    (
        "mapping values are not allowed",
        "any",
        "a `:` stands where no key can be",
        "Put the value in quotes, or check the indentation.",
    ),
    (
        "found unexpected ':'",
        "any",
        "a `:` stands where no key can be",
        "Put a space behind it, or the text in quotes.",
    ),
    ("mapping keys are not allowed", "any", "a `?` stands where no key can be", "Put the text in quotes."),
    ("block sequence entries are not allowed", "any", "a `-` stands where no item can be", "Check the indentation."),
    ("unknown escape character", "any", "this escape is unknown", "Double the backslash, or use single quotes."),
    ("expected hexdecimal number", "any", "an escape lacks digits", "Double the backslash, or use single quotes."),
    ("invalid Unicode character", "any", "a `\\U` escape names no character", "Correct it, or use single quotes."),
    ("unexpected end of stream", "any", "this quote is never closed", "Close it."),
    ("unexpected document indicator", "any", "this quote is never closed", "Close it."),
    ("expected ',' or '}'", "any", "a `,` or `}` is missing before this", "Close the bracket."),
    ("expected ',' or ']'", "any", "a `,` or `]` is missing before this", "Close the bracket."),
    ("expected key", "any", "this does not belong to the block before it", "Check the indentation."),
    ("expected '-' indicator", "any", "this does not belong to the block before it", "Check the indentation."),
    ("expected <document start>", "any", "this does not belong to what stands before it", "Check the indentation."),
    ("could not find expected ':'", "any", "a `:` is missing behind the key", "Write `key: value`."),
    ("expected node content", "", "the file ends inside brackets", "Close the bracket."),
    ("expected node content", "any", "a value is missing before this", 'Write it, or "" for an empty text.'),
    ("an indentation indicator equal to 0", "any", "`0` stands behind `|` or `>`", "Delete it."),
    ("directive name", "any", "a line starts with `%`", "Put the text in quotes, or indent the line."),
    ("expected comment or line break", "any", "text stands behind `|` or `>`", "Start it in the next line, indented."),
)
"""Part of libyaml's problem, the character at its place, what we say, what to do. The first that fits."""
