"""Foreign Python as a syntax tree. It is read and never run."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_NAME = "gpurun_foreign_source"
_MAGIC = re.compile(r"^\s*[!%?]")
_CALLS = frozenset({"os.environ.get", "environ.get", "os.getenv", "getenv"})
_TABLES = frozenset({"os.environ", "environ"})


def parsed(text: str) -> ast.Module | None:
    """None for what is no Python, or too deep to be read."""
    # by name and for good: `catch_warnings` is not safe while other threads work
    warnings.filterwarnings("ignore", module=_NAME)
    try:
        return ast.parse(text, filename=f"{_NAME}.py")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def notebook_code(text: str) -> tuple[str, tuple[str, ...]]:
    """The code of a notebook's cells, each line of which keeps its place, and its shell and magic lines.

    Empty when it is no notebook.
    """
    try:
        book = json.loads(text)
    except (ValueError, RecursionError):
        return "", ()
    cells = book.get("cells") if isinstance(book, dict) else None
    code: list[str] = []
    magic: list[str] = []
    for cell in cells if isinstance(cells, list) else ():
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        for line in _lines(cell.get("source")):
            if _MAGIC.match(line):
                magic.append(line.strip())
                code.append(f"{line[: len(line) - len(line.lstrip())]}pass")
            else:
                code.append(line)
    return "\n".join(code), tuple(magic)


def _lines(source: object) -> list[str]:
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    return source.split("\n") if isinstance(source, str) else []


def dotted(node: ast.expr) -> str:
    """`torch.hub.load` of a name or a chain of attributes; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return f"….{parts[0]}" if parts else ""
    return ".".join([node.id, *reversed(parts)])


def imports(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Top-level names of what it imports."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return frozenset(found)


def modules(nodes: Iterable[ast.AST], path: str) -> tuple[str, ...]:
    """Dotted names of what it imports, from the top of the repository where they are relative to `path`."""
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = path.split("/")[: -node.level] if node.level else []
            start = ".".join([*parts, *([node.module] if node.module else [])])
            found += [start, *(f"{start}.{alias.name}" for alias in node.names)]
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedVariable:
    """Of the environment."""

    name: str
    line: int
    default: ast.expr | None = None


def asked_variable(node: ast.AST | None) -> AskedVariable | None:
    """`os.environ["X"]`, `os.environ.get("X", …)` and `os.getenv("X", …)`."""
    match node:
        case ast.Call(func=func, args=[ast.Constant(value=str() as name), *rest]) if dotted(func) in _CALLS:
            named = next((one.value for one in node.keywords if one.arg == "default"), None)
            return AskedVariable(name=name, line=node.lineno, default=rest[0] if rest else named)
        case ast.Subscript(value=value, slice=ast.Constant(value=str() as name)) if dotted(value) in _TABLES:
            return AskedVariable(name=name, line=node.lineno)
        case _:
            return None


def text_of(node: ast.AST | None, texts: Mapping[str, str], variables: Mapping[str, str]) -> str | None:
    """What it is when the environment has these variables, as far as that is written there."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Name(id=name):
            return texts.get(name)
        case ast.BoolOp(op=ast.Or(), values=[first, *rest]) if (asked := asked_variable(first)) is not None:
            return variables.get(asked.name) or next(
                filter(None, (text_of(one, texts, variables) for one in rest)), None
            )
        case _:
            asked = asked_variable(node)
            if asked is None:
                return None
            return variables[asked.name] if asked.name in variables else text_of(asked.default, texts, variables)


def defaults(nodes: Iterable[ast.AST], texts: Mapping[str, str]) -> dict[str, str]:
    """What variables of the environment are taken for when they are not set."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            asked = asked_variable(node.values[0])
        else:
            asked = asked_variable(node) if isinstance(node, ast.Call) else None
        text = text_of(node, texts, {}) if asked is not None else None
        if asked is not None and text is not None:
            found.setdefault(asked.name, text)
    return found


def constants(tree: ast.Module, nodes: Iterable[ast.AST], variables: Mapping[str, str]) -> dict[str, str]:
    """Texts that a name of the module stands for and nothing else: it is bound once in the whole file."""
    bound: dict[str, int] = {}
    for node in nodes:
        for name in _binds(node):
            bound[name] = bound.get(name, 0) + 1
    texts: dict[str, str] = {}
    for statement in tree.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ) if bound[name] == 1:
                text = text_of(value, texts, variables)
                texts |= {} if text is None else {name: text}
            case _:
                pass
    return texts


def _binds(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return (name,)
        case ast.arg(arg=name):
            return (name,)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return tuple(names)
        case _:
            return ()
