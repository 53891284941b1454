"""Which trees are not unpacked anywhere."""

from __future__ import annotations

import pytest

from gpurun.adapters.git.safe import require_safe
from gpurun.adapters.git.tree import Entry
from gpurun.domain.errors import PinNotFound


def entries(*named: tuple[str, str]) -> list[Entry]:
    return [Entry(mode.encode(), b"0" * 40, 1, path) for mode, path in named]


FILE, LINK, MODULE = "100644", "120000", "160000"


@pytest.mark.parametrize(
    "named",
    [
        [(FILE, "../a")],
        [(FILE, "/a")],
        [(FILE, "a//b")],
        [(FILE, "a/./b")],
        [(FILE, "a/..")],
        [(FILE, ".git/config")],
        [(FILE, "a/.GiT/hooks/x")],
        [(FILE, ".g\u200cit/config")],
        [(LINK, "git~1")],
        [(FILE, ".git. . /x")],
        [(FILE, ".git::$INDEX_ALLOCATION/x")],
        [(MODULE, ".git")],
        [("060000", "device")],
        [("000000", "x")],
        [(LINK, "a"), (FILE, "a/b")],
        [(LINK, "A"), (FILE, "a/b")],
        [(FILE, "Straße/b"), (LINK, "STRASSE")],
        [(LINK, "x/Y"), (MODULE, "X/y/z")],
    ],
)
def test_b108_what_would_be_written_elsewhere_is_refused(named):
    with pytest.raises(PinNotFound, match="The commit holds"):
        require_safe(entries(*named))


def test_odd_names_and_links_are_fine():
    names = [
        "README",
        "readme",
        ".gitignore",
        ".gitmodules",
        "git",
        "a/.github/x",
        "..a",
        "a..",
        "...",
        "ü ",
        "-rf",
        "\\",
        "c:",
    ]
    require_safe(entries(*((FILE, name) for name in names), (LINK, "out"), (LINK, "d/link"), (FILE, "d/linked")))
