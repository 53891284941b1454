"""Text that people write to make a bot do something, and what GitHub would do with Markdown, by its own rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

VECTORS: dict[str, str] = {
    "mention": "@acme/all and (@acme) _@acme_ 'x'@acme é@acme",
    "mention behind code": "`x`@acme `y` @acme",
    "mention in an entity": "&#64;acme &commat;acme \\@acme",
    "closing": "fixes #1, Closes acme/other#2, resolved: GH-3, fixes gh-4",
    "closing by address": "fixes https://github.com/acme/net/issues/9",
    "closing around Markdown": "fixes *#1* [#2] #<b>3</b> #\u200d4",
    "autolink": "http://evil.test www.evil.test ftp://evil.test HTTP://EVIL.TEST",
    "autolink in brackets": "<http://evil.test> <a@evil.test>",
    "mail": "someone@evil.test mailto:a@evil.test xmpp:a@evil.test/x",
    "link": "[x](http://evil.test) [y](//evil.test) [z][z]\n\n[z]: //evil.test",
    "image": "![x](//evil.test/x.png) ![y][y]\n\n[y]: //evil.test/y.png",
    "HTML": "<img src=//evil.test/x onerror=y> </details><script>x</script> <!-- x -->",
    "marker": '<!-- {"gpurun":"abc"} -->',
    "fence": "```\n````\n~~~~ `\n`` x",
    "end of a block": "text\n</summary></details>\n\n# heading\n---\n===",
    "list and quote": "- a\n+ b\n1. c\n2) d\n> e\n* f",
    "table": "| a | b |\n| - | - |\n`c | d`",
    "command": "/gpurun smoke\n\n/gpurun smoke",
    "bidi": "\u202eevil\u202c \u2066x\u2069 \u200f\u061c",
    "invisible": "a\u200bb\u2060c\u00add\U000e0041e\u3164f\u115fg\ufeffh\u034fi\U000e0100j",
    "ANSI": "\x1b[31mred\x1b[0m \x1b[2J\x1b[1;1H \x9b31mx",
    "OSC": "\x1b]52;c;ZXZpbA==\x07 \x1b]8;;http://evil.test\x1b\\here\x1b]8;;\x1b\\ \x1b]0;title\x07",
    "controls": "a\x00b\x07c\x08d\x0be\x0cf\x7fg\x85h\u2028i",
    "mathematics": "$\\ce{x}$ $$y$$ $`z`$",
    "emphasis": "**x** __x__ ~~x~~ *x* _x_ \\*x\\*",
    "workflow command": "::error::x ::set-output name=a::b ##[error]x",
    "log line of ours": "::gpurun:: run: passed",
    "long word": "x" * 5000,
    "four bytes": "\U0001f600" * 2000,
    "halves": "a\udc80b\ud83d",
}

_PINGS = re.compile(r"(?:^|[^A-Za-z0-9_])@[A-Za-z0-9]")
_REFERS = re.compile(r"(?:^|\W)(?:#[0-9]|gh-[0-9])|[\w.-]+/[\w.-]+#[0-9]", re.IGNORECASE)
_LINKS = re.compile(r"(?:https?|ftp)://\S|(?:^|[\s*_~(])www\.\S|[\w.+-]+@[\w-]+\.[\w-]", re.IGNORECASE)
_MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OUR_TAGS = re.compile(r"<details(?: open)?><summary>[\w ,.:()+-]+</summary>\s*|</details>\s*")
INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200e\u200f\u2028-\u202f\u2060-\u206f\ufeff]")


def faults(markdown: str, *, links: tuple[str, ...] = ()) -> list[str]:
    """What GitHub would do besides showing text; empty as it should be. `links`: how addresses of ours begin."""
    found = [f"shows {INVISIBLE.findall(markdown)}"] if INVISIBLE.search(markdown.replace("\t", "")) else []
    for token in _tokens(_MARKDOWN.parse(markdown)):
        said = token.content
        if token.type in ("html_block", "html_inline") and not OUR_TAGS.fullmatch(said):
            found.append(f"HTML {said!r}")
        if token.type == "image":
            found.append("an image")
        if token.type == "link_open" and not str(token.attrs["href"]).startswith(links or ("nothing",)):
            found.append(f"a link to {token.attrs['href']}")
        if token.type in ("text", "text_special"):
            found += text_faults(said)
    return found


def html(markdown: str) -> str:
    """As a reader's browser gets it."""
    return _MARKDOWN.render(markdown).strip()


def text_faults(text: str) -> list[str]:
    """The same where no Markdown is read."""
    tries = (("pings", _PINGS), ("refers to", _REFERS), ("links", _LINKS))
    return [f"{what} {match[0]!r} in {text!r}" for what, pattern in tries if (match := pattern.search(text))]


def _tokens(tokens: list[Token]) -> Iterator[Token]:
    """In order; neighbours of one text are joined, as a browser has them."""
    text: Token | None = None
    for token in (each for one in tokens for each in (one.children if one.type == "inline" else [one]) or ()):
        if token.type in ("text", "text_special"):
            text = token if text is None else text.copy(content=text.content + token.content)
            continue
        if text is not None:
            yield text
        text = None
        yield token
    if text is not None:
        yield text
