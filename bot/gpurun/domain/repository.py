"""What is known of a repository without running anything of it: its paths, and the text of a few small files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

DOTENV = ".env"
"""At the top of a checkout: values of secrets, for `gpurun run`."""
MAX_PATHS = 5_000
"""Of the tree, the shallow ones first."""
MAX_TEXTS = 60
MAX_TEXT_BYTES = 64 * 1024
MAX_NOTEBOOK_BYTES = 256 * 1024
"""Notebooks hold their pictures."""
MAX_ALL_BYTES = 512 * 1024
"""Of all texts together: Python of that size is read in about a second."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A regular file of the tree."""

    path: str
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoFacts:
    """Foreign text, bounded. Empty when nothing is known."""

    paths: tuple[str, ...] = ()
    """Regular files, relative to the top, with `/`; the shallow ones first, at most MAX_PATHS."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """By path, of the files that say what the repository needs."""
    is_cut: bool = False
    """There are more paths."""
    dotenv: tuple[str, ...] = ()
    """Names of variables in the `.env` at the top of this checkout; values are never kept."""

    def inside(self, folder: str) -> RepoFacts:
        """Of that folder alone, with paths relative to it; empty for the top."""
        if not folder:
            return self
        start = f"{folder}/"
        return RepoFacts(
            paths=tuple(path.removeprefix(start) for path in self.paths if path.startswith(start)),
            texts={path.removeprefix(start): text for path, text in self.texts.items() if path.startswith(start)},
            is_cut=self.is_cut,
            dotenv=self.dotenv,
        )


_FOREIGN = re.compile(
    r"(?:^|/)(?:\.git|\.venv|venv|node_modules|site-packages|third_party|third-party|vendor|vendored|\.tox)/"
)
_NAMED = (
    re.compile(r"(?:^|/)(?:[\w.-]+\.)?(?:Dockerfile|Containerfile)(?:\.[\w.-]+)?$"),
    re.compile(
        r"(?:^|/)(?:requirements[\w.-]*\.(?:txt|in)|requirements/[\w.-]+\.(?:txt|in)|pyproject\.toml|setup\.py)$"
    ),
    re.compile(
        r"(?:^|/)(?:environment\.ya?ml|packages\.txt|runtime\.txt|\.python-version|README(?:\.md)?)$", re.IGNORECASE
    ),
    re.compile(r"(?:^|/)\.env\.(?:example|sample|template|dist)$"),
    re.compile(r"\.(?:py|ipynb)$"),
)
"""Worth reading, the telling ones first."""
_TEST = re.compile(r"(?:^|/)(?:tests?/|test_[^/]*$|[^/]*_test\.py$|conftest\.py$)")


_VARIABLE = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w{0,255})[ \t]*=", re.MULTILINE | re.ASCII)


def names_of_variables(text: str) -> tuple[str, ...]:
    """Of a file such as `.env`, each once."""
    return tuple(dict.fromkeys(_VARIABLE.findall(text)))


def nearest(listed: Iterable[Listed]) -> tuple[tuple[Listed, ...], bool]:
    """At most MAX_PATHS of a tree, the shallow ones first, and whether there are more.

    Names that no person could read in a report are left out.
    """
    readable = [one for one in listed if one.path.isprintable() and not _FOREIGN.search(one.path)]
    ordered = sorted(readable, key=lambda one: (one.path.count("/"), one.path))
    return tuple(ordered[:MAX_PATHS]), len(ordered) > MAX_PATHS


def worth_reading(listed: Iterable[Listed]) -> tuple[Listed, ...]:
    """The files whose text says what the repository needs, within the bounds on number and bytes."""
    ranked = sorted(
        ((rank, one) for one in listed if (rank := _rank(one)) is not None), key=lambda pair: (pair[0], pair[1].path)
    )
    chosen: list[Listed] = []
    total = 0
    for _, one in ranked:
        if len(chosen) == MAX_TEXTS:
            break
        if total + one.size <= MAX_ALL_BYTES:
            chosen.append(one)
            total += one.size
    return tuple(chosen)


def _rank(one: Listed) -> tuple[int, int, int] | None:
    limit = MAX_NOTEBOOK_BYTES if one.path.endswith(".ipynb") else MAX_TEXT_BYTES
    kind = next((number for number, pattern in enumerate(_NAMED) if pattern.search(one.path)), None)
    if kind is None or not 0 < one.size <= limit:
        return None
    depth = one.path.count("/")
    is_code = kind == len(_NAMED) - 1
    return (kind if is_code or depth < 3 else kind + len(_NAMED), int(bool(_TEST.search(one.path))), depth)
