"""What of a repository is made to be run: files with a main guard, and packages with a `__main__`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpurun.plan.starter.models import NAMES_A_MODEL

_GUARD = re.compile(
    r"""^if\s*\(?\s*(?:__name__\s*==\s*["']__main__["']|["']__main__["']\s*==\s*__name__)""", re.MULTILINE
)
_PLAIN = re.compile(r"(?:[A-Za-z_]\w*/)*[A-Za-z_]\w*\.py", re.ASCII)
_PLAIN_PATH = re.compile(r"(?!-)[A-Za-z0-9_./-]+\.py")
_BESIDE_THE_POINT = re.compile(
    r"(?:^|/)(?:tests?|docs?|tools?|utils?|benchmarks?|bench|ci|hack|examples?|setup\.py$|conftest\.py$)(?:/|$|\.py$)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Main:
    """One of them."""

    path: str
    call: str
    """What runs it from the top of the project."""


def mains(
    paths: Collection[str], texts: Mapping[str, str], known: Sequence[str], *, installed: bool
) -> tuple[Main, ...]:
    """The likeliest first: names that are `known`, in their order, then packages, then other files; of each kind
    those that load a model.

    `installed`: packages below `src/` are found by name.
    """
    there = frozenset(paths)
    found = [path for path in there if _is_main(path, texts.get(path, ""))]
    found.sort(key=lambda path: _rank(path, texts.get(path, ""), known))
    return tuple(Main(path=path, call=_call(path, there, installed=installed)) for path in found)


def files_of_module(name: str, paths: Collection[str]) -> Iterator[str]:
    """What `python3 -m name` runs, when it is of the repository."""
    inside = name.replace(".", "/")
    for place in ("", "src/"):
        yield from (path for path in (f"{place}{inside}.py", f"{place}{inside}/__main__.py") if path in paths)


def _is_main(path: str, text: str) -> bool:
    if not _PLAIN_PATH.fullmatch(path) or path in ("setup.py", "conftest.py", "__main__.py"):
        return False
    return path.endswith("/__main__.py") or _GUARD.search(text) is not None


def _rank(path: str, text: str, known: Sequence[str]) -> tuple[bool, int, bool, int, str]:
    folder, _, name = path.rpartition("/")
    stem = name.removesuffix(".py")
    order = known.index(stem) if stem in known else len(known) + (stem != "__main__")
    is_aside = bool(_BESIDE_THE_POINT.search(f"{folder}/" if stem == "__main__" else path))
    return is_aside, order, not NAMES_A_MODEL.search(text), path.count("/"), path


def _call(path: str, there: frozenset[str], *, installed: bool) -> str:
    """By its module where it is of a package: relative imports work there only."""
    *folders, name = path.split("/")
    n_above = len(folders)
    while n_above and f"{'/'.join(folders[:n_above])}/__init__.py" in there:
        n_above -= 1
    if name == "__main__.py":
        n_above = min(n_above, len(folders) - 1)
    if n_above == len(folders) or not _PLAIN.fullmatch("/".join([*folders[n_above:], name])):
        return f"python3 {path}"
    module = ".".join([*folders[n_above:], *([] if name == "__main__.py" else [name.removesuffix(".py")])])
    above = "/".join(folders[:n_above])
    is_found = not above or (installed and above == "src")
    return f"python3 -m {module}" if is_found else f"PYTHONPATH={above} python3 -m {module}"
