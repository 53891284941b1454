"""What planning still has to fetch of a source, and when it is too much."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpurun.domain.errors import PinNotFound
from gpurun.domain.ids import CommitSha, TreeSha
from gpurun.domain.run import Pins
from gpurun.domain.source import MAX_SOURCE_BYTES, Fetched, Gitlink
from gpurun.plan.load import load
from gpurun.plan.resolve import (
    FetchCommit,
    FetchLfs,
    FetchSubmodule,
    missing_pins,
    with_commit,
    with_lfs,
    with_submodule,
)
from tests.unit.plan.golden import LEAST

JOB = load(LEAST).jobs["smoke"]
TREE = TreeSha("7" * 40)


def link(path: str) -> Gitlink:
    return Gitlink(path=path, name=path, url=f"../{path}", commit=CommitSha("1" * 40))


def fetched(*paths: str, n_bytes: int = 0, n_lfs: int = 0) -> Fetched:
    return Fetched(tree=TREE, n_bytes=n_bytes, links=tuple(link(path) for path in paths), n_lfs=n_lfs)


def missing(pins: Pins):
    return missing_pins(JOB, replace(pins, image_confirmed=True))


def test_submodules_are_found_level_by_level_and_fetched_some_at_once():
    assert missing(Pins()) == (FetchCommit(),)
    pins = with_commit(Pins(), fetched("a", "b", "c", "d", "e", n_lfs=2))
    assert missing(pins) == (*(FetchSubmodule(link(path)) for path in "abcd"), FetchLfs(None))
    pins = with_lfs(with_submodule(pins, link("b"), "https://x/b", fetched("in", n_lfs=1)), "")
    inner = replace(link("in"), path="b/in", above="https://x/b", depth=2)
    assert missing(pins) == (
        *(FetchSubmodule(link(path)) for path in "acde"), FetchLfs(replace(link("b"), source="https://x/b")),
    )  # fmt: skip
    for path in "acde":
        pins = with_submodule(pins, link(path), f"https://x/{path}", fetched())
    pins = with_lfs(pins, "b")
    assert missing(pins) == (FetchSubmodule(inner),)
    assert missing(with_submodule(pins, inner, "https://x/in", fetched())) == ()
    assert pins.lfs


def test_the_whole_source_is_counted():
    most = with_commit(Pins(), fetched("a", n_bytes=MAX_SOURCE_BYTES - 5))
    assert with_submodule(most, link("a"), "x", fetched(n_bytes=5)).source_bytes == MAX_SOURCE_BYTES
    with pytest.raises(PinNotFound, match=r"has 2\.0 GiB, more than the 2 GiB that a run gets") as caught:
        with_submodule(most, link("a"), "x", fetched(n_bytes=6))
    assert caught.value.hint


def test_submodules_have_an_end():
    with pytest.raises(PinNotFound, match="more than the 64 submodules"):
        with_commit(Pins(), fetched(*(str(n) for n in range(65))))
    deep = replace(link("a"), depth=5)
    pins = replace(with_commit(Pins(), fetched()), links=(deep,))
    with pytest.raises(PinNotFound, match="'a' has submodules, deeper than the 5 levels"):
        with_submodule(pins, deep, "x", fetched("b"))
