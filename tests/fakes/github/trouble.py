"""Failures as state: which of the next requests go wrong, and how."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(eq=False)
class Trouble:
    """A rule for requests to come."""

    method: str
    path: str
    """A template; `{}` stands for one path segment."""
    status: int = 502
    """0: the client waits in vain."""
    after_doing: bool = False
    """The request takes effect, its answer is lost."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    times: int = 1
    cut: bool = False
    """The answer breaks off in the middle."""
    slow_s: float = 0.0
    """Only slow, then answered as usual."""

    def matches(self, method: str, path: str) -> bool:
        pattern = re.escape(self.path).replace(re.escape("{}"), "[^/]+")
        return self.times > 0 and method == self.method and re.fullmatch(pattern, path) is not None


class Troubles:
    """The rules that are not used up, oldest first."""

    def __init__(self) -> None:
        self._rules: list[Trouble] = []

    def add(self, rule: Trouble) -> None:
        self._rules.append(rule)

    def take(self, method: str, path: str) -> Trouble | None:
        """The first rule that fits, used up once."""
        for rule in self._rules:
            if rule.matches(method, path):
                rule.times -= 1
                if rule.times == 0:
                    self._rules.remove(rule)
                return rule
        return None

    def clear(self) -> None:
        """All is well again."""
        self._rules.clear()

    @property
    def unused(self) -> list[Trouble]:
        """A test that leaves one behind did not test what it meant to."""
        return list(self._rules)
