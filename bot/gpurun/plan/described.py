"""What the docstrings of parts and of their keys say: their source is read, so only pages and schemas ask for it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from itertools import pairwise

from gpurun.domain.part import Part


def description(part: type[Part]) -> str:
    """Of the part, in one line."""
    return " ".join((part.__doc__ or "").split())


def descriptions(part: type[Part]) -> Mapping[str, str]:
    """Of each of its own keys, in one line: the docstring below it."""
    (definition,) = ast.parse(inspect.getsource(part)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, below in pairwise(definition.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                found[name] = " ".join(text.split())
    return found
