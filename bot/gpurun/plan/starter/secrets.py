"""Secrets that code and examples of `.env` name. Names only: no value is taken over."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpurun.domain.environment import name_fault
from gpurun.domain.repository import DOTENV, names_of_variables
from gpurun.plan.starter.python_source import asked_variable

MAX_SECRETS = 10
_CREDENTIAL = re.compile(r"(?:TOKEN|KEY|SECRET|PASSWORD)(?:_ID)?$")
_EXAMPLE = re.compile(r"\.env\.(?:example|sample|template|dist)")
NAMES_A_VARIABLE = re.compile(r"environ|getenv")
"""Only files with one of these are looked through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSecret:
    """A variable that looks like a credential."""

    name: str
    where: str
    """`app.py:12`, or `.env`."""


def secrets_in_code(path: str, nodes: Iterable[ast.AST]) -> Iterator[FoundSecret]:
    """`os.environ["X"]`, `os.environ.get("X")` and `os.getenv("X")`, by line."""
    asked = sorted({(one.line, one.name) for node in nodes if (one := asked_variable(node)) is not None})
    yield from (FoundSecret(name=name, where=f"{path}:{line}") for line, name in asked if _is_one(name))


def secrets_in_examples(texts: Mapping[str, str], dotenv: Iterable[str]) -> Iterator[FoundSecret]:
    """`.env.example` and the like at the top of the project, then the names of `.env`."""
    for path in sorted(path for path in texts if _EXAMPLE.fullmatch(path)):
        yield from (FoundSecret(name=name, where=path) for name in names_of_variables(texts[path]) if _is_one(name))
    yield from (FoundSecret(name=name, where=DOTENV) for name in dotenv if _is_one(name))


def chosen(found: Iterable[FoundSecret], *, besides: Collection[str] = ()) -> tuple[FoundSecret, ...]:
    """Each name once, where it was first seen; without those of `besides`."""
    first: dict[str, FoundSecret] = {}
    for one in found:
        first.setdefault(one.name, one)
    return tuple(one for one in first.values() if one.name not in besides)[:MAX_SECRETS]


def is_credential(name: str) -> bool:
    """It looks like one."""
    return _CREDENTIAL.search(name) is not None


def _is_one(name: str) -> bool:
    return is_credential(name) and not name_fault(name)
