"""Foreign Python as a syntax tree. It is read and never run."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterable

_NAME = "gpurun_foreign_source"
_MAGIC = re.compile(r"^\s*[!%?]")


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


def constants(tree: ast.Module, nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Texts that a name of the module stands for and nothing else: it is bound once in the whole file."""
    bound: dict[str, int] = {}
    for node in nodes:
        for name in _binds(node):
            bound[name] = bound.get(name, 0) + 1
    texts: dict[str, str] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str() as text)):
                texts[name] = text
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str() as text)):
                texts[name] = text
    return {name: text for name, text in texts.items() if bound[name] == 1}


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
