"""Markdown as GitHub shows it: its flavour, and only the HTML that GitHub lets through."""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser

from markdown_it import MarkdownIt

VOID = frozenset({"br", "hr", "img", "input"})
_ELEMENTS = """
    a b blockquote code dd del details div dl dt em h1 h2 h3 h4 h5 h6 i ins kbd li ol p picture pre q s
    samp small span strong sub summary sup table tbody td tfoot th thead tr tt ul var
"""
ALLOWED = VOID | frozenset(_ELEMENTS.split())
"""The element list that GitHub publishes with its sanitiser, without media."""
SWALLOWED = frozenset({"script", "style", "title", "textarea", "iframe", "svg", "math"})
"""Their content goes too."""
ATTRIBUTES = frozenset({"align", "alt", "colspan", "height", "open", "rowspan", "start", "title", "width"})

_markdown = MarkdownIt("gfm-like", {"html": True, "linkify": False, "breaks": True})
_markdown.disable("linkify")


def to_html(text: str) -> str:
    """Safe to put into a page. Comments and what is not allowed are gone."""
    cleaner = _Cleaner()
    cleaner.feed(_markdown.render(text))
    cleaner.close()
    cleaner.close_all()
    return cleaner.html


class _Cleaner(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.html = ""
        self._swallowing = ""
        self._open: list[str] = []

    def close_all(self) -> None:
        """What a comment leaves open must not reach beyond it."""
        while self._open:
            self.html += f"</{self._open.pop()}>"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._swallowing:
            return
        if tag in SWALLOWED:
            self._swallowing = tag
        elif tag in ALLOWED:
            kept = "".join(f' {name}="{escape(value or "")}"' for name, value in attrs if _allowed(name, value))
            self.html += f"<{tag}{kept}>"
            if tag not in VOID:
                self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._swallowing:
            self._swallowing = "" if tag == self._swallowing else self._swallowing
        elif tag in self._open:
            closed = ""
            while closed != tag:
                closed = self._open.pop()
                self.html += f"</{closed}>"

    def handle_data(self, data: str) -> None:
        if not self._swallowing:
            self.html += escape(data, quote=False)


def _allowed(name: str, value: str | None) -> bool:
    if name in ("href", "src"):
        return (value or "").startswith(("https://", "http://", "#", "mailto:", "/"))
    return name in ATTRIBUTES
