"""What `.dockerignore` leaves out of a context, as Docker's command line does it. Pure.

Source: `patternmatcher` of the moby project (2026-12-01). A pattern that matches a folder matches all below it, later
lines win, and `!` brings back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Rule:
    shape: re.Pattern[str]
    brings_back: bool


class Ignored:
    """Made of the text of a `.dockerignore`. A line that is no pattern is passed over."""

    def __init__(self, text: str) -> None:
        self._rules = [rule for line in text.splitlines() if (rule := _rule(line)) is not None]

    def __call__(self, path: str) -> bool:
        """Whether that path, from the top of the context, stays out."""
        if not self._rules:
            return False
        parts = path.split("/")
        with_parents = ["/".join(parts[: number + 1]) for number in range(len(parts))]
        out = False
        for rule in self._rules:
            if rule.brings_back == out and any(rule.shape.fullmatch(one) for one in with_parents):
                out = not rule.brings_back
        return out


def _rule(line: str) -> _Rule | None:
    text = line.removeprefix("\ufeff")
    if text.startswith("#"):
        return None
    text = text.strip()
    brings_back = text.startswith("!")
    text = _clean(text.removeprefix("!").strip())
    if not text or text == ".":
        return None
    try:
        return _Rule(re.compile(_shape(text), re.DOTALL), brings_back)
    except re.error:
        return None


def _clean(text: str) -> str:
    """Without `.`, `..` and empty parts, as Go's `filepath.Clean` and then without the first slash."""
    kept: list[str] = []
    for part in text.split("/"):
        if part == ".." and kept:
            kept.pop()
        elif part not in {"", ".", ".."}:
            kept.append(part)
    return "/".join(kept)


def _shape(pattern: str) -> str:
    """A regular expression for whole paths."""
    made, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**", at):
            at += 2
            if pattern.startswith("/", at):
                at += 1
                made += "(?:.*/)?"
            else:
                made += ".*"
            continue
        at += 1
        if char == "*":
            made += "[^/]*"
        elif char == "?":
            made += "[^/]"
        elif char == "\\" and at < len(pattern):
            made += re.escape(pattern[at])
            at += 1
        elif char == "[" and (end := pattern.find("]", at + 1)) > 0:
            inside = pattern[at:end].replace("\\", "\\\\").replace("[", "\\[")
            made += f"[{inside}]"
            at = end + 1
        else:
            made += re.escape(char)
    return made
