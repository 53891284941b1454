"""Which lines of a comment are ours: those that start with the prefix where a reader sees plain text.

Not ours: block quotes (lazy continuation included), fenced and indented code, code spans, HTML comments, raw HTML that
quotes or shows code, link titles, image descriptions, and `- /gpurun smoke`, which starts with a dash. A line inside a
list that itself starts with the prefix is ours. Up to three spaces may stand before the prefix, as before any
Markdown paragraph.

Every candidate line gets a mark of private-use characters in place of the prefix; a CommonMark parser then says
whether that mark ends up in visible text. So the parser's rules decide, not a second set of our own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

INVISIBLE = "\u00ad\u180e\u200b\u200c\u200d\u2060\ufeff"
"""Zero-width characters: people paste them unknowingly."""

MAX_PARAGRAPH = 4 * 1024
"""Characters of the paragraph around a command: inline Markdown can be quadratic in its length."""

MAX_PARAGRAPHS = 4 * MAX_PARAGRAPH
"""Characters of all paragraphs with commands in one comment."""

_SPACE = rf"[\s{INVISIBLE}]"
_MARK = re.compile("\ue000([0-9]+)\ue001")
_HTML_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_CODE_HTML = re.compile(r"\s*<(?:pre|script|style|textarea|blockquote|code|samp|kbd)\b", re.IGNORECASE)
_QUOTING_TAG = re.compile(r"<(/?)(?:blockquote|pre|code|samp|kbd)\b[^<>]*>", re.IGNORECASE)
"""Without `<` inside: from each of ten thousand unclosed tags a search to the end would be minutes of work."""
_TAG_OR_MARK = re.compile(f"{_QUOTING_TAG.pattern}|{_MARK.pattern}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Line:
    """A line that starts with the prefix."""

    rest: str
    """What follows the prefix."""
    problem: str = ""
    """Why it cannot be taken although it is seen; empty when it can."""


def command_lines(body: str, prefix: str) -> tuple[Line, ...]:
    """In order of appearance."""
    source = body.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    starts = _start_pattern(prefix)
    candidates = [(number, found) for number, line in enumerate(source) if (found := starts.match(line))]
    if not candidates:
        return ()
    marked = [re.sub("[\ue000\ue001]", "\ufffd", line) for line in source]
    for number, found in candidates:
        marked[number] = f"{marked[number][: found.start(1)]}\ue000{number}\ue001{marked[number][found.end(1) :]}"
    problems = dict(_visible("\n".join(marked)))
    return tuple(
        Line(source[number][found.end(1) :], problems[number]) for number, found in candidates if number in problems
    )


@cache
def _start_pattern(prefix: str) -> re.Pattern[str]:
    """Prefix at the start of a line, then a boundary: the end, a space, or punctuation that ends a word.

    `/gpurunner`, `/gpurun-stg`, `/gpurun/x` and `/gpurun.yml` are other words.
    """
    boundary = rf"(?=$|{_SPACE}|[.,:;!?]+(?:$|{_SPACE}))"
    return re.compile(rf"{_SPACE}*({re.escape(prefix)}){boundary}", re.IGNORECASE)


@cache
def _blocks() -> MarkdownIt:
    return MarkdownIt("commonmark").disable("inline")


@cache
def _inlines() -> MarkdownIt:
    return MarkdownIt("commonmark")


def _visible(marked: str) -> Iterator[tuple[int, str]]:
    """(line number, problem) of every mark that a reader sees as text."""
    quotes = html_quotes = 0
    room = MAX_PARAGRAPHS
    for token in _blocks().parse(marked):
        if token.type in ("blockquote_open", "blockquote_close"):
            quotes += token.nesting
        elif token.type == "html_block":
            if quotes == 0 and html_quotes <= 0:
                yield from _in_html_block(token.content)
            html_quotes += _html_quotes(token.content)
        elif token.type == "inline":
            if quotes == 0 and html_quotes <= 0 and _MARK.search(token.content):
                yield from _in_paragraph(token.content, room)
                room -= len(token.content)
            html_quotes += _html_quotes(token.content)


def _html_quotes(text: str) -> int:
    """How many quoting tags the text opens and leaves open; below zero: closes."""
    if "<" not in text:
        return 0
    return sum(-1 if tag.group(1) else 1 for tag in _QUOTING_TAG.finditer(_HTML_COMMENT.sub("", text)))


def _in_html_block(html: str) -> Iterator[tuple[int, str]]:
    """Inside `<details>` and the like Markdown is not read up to the next empty line, so nobody can be sure."""
    if _CODE_HTML.match(html):
        return
    open_quotes = 0
    for found in _TAG_OR_MARK.finditer(_HTML_COMMENT.sub("", html)):
        closing, mark = found.groups()
        if mark is None:
            open_quotes += -1 if closing else 1
        elif open_quotes <= 0:
            yield int(mark), "it stands inside an HTML block; put an empty line before it"


def _in_paragraph(text: str, room: int) -> Iterator[tuple[int, str]]:
    if len(text) > min(MAX_PARAGRAPH, room):
        for mark in _MARK.finditer(text):
            yield int(mark.group(1)), "its paragraph is very long; put an empty line before and after it"
        return
    for token in _inlines().parseInline(text):
        yield from _in_text(token.children or ())


def _in_text(children: Iterable[Token]) -> Iterator[tuple[int, str]]:
    html_quotes = 0
    for child in children:
        if child.type == "html_inline":
            html_quotes += _html_quotes(child.content)
        elif child.type == "text" and html_quotes <= 0:
            for mark in _MARK.finditer(child.content):
                yield int(mark.group(1)), ""
