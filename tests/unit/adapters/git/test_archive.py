"""What an archive will take, counted before it is made, against git's own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpurun.adapters.git.archive import Members, entry_bytes, file_bytes, file_head, tree_bytes
from gpurun.adapters.git.tree import FILES, GITLINK, LINK, read_entries

MODES = sorted({*FILES, LINK, GITLINK})
NAMES = st.text(st.sampled_from("aü.-"), min_size=1, max_size=120).filter(lambda name: name not in {".", ".."})
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
TREES = st.dictionaries(PATHS, st.tuples(st.sampled_from(MODES), st.integers(0, 1200)), max_size=8)


def git(folder: str, *argv: str, given: bytes = b"") -> bytes:
    return subprocess.run(["git", "-C", folder, *argv], input=given, capture_output=True, check=True).stdout


def importable(tree: dict[str, tuple[bytes, int]]) -> Iterator[bytes]:
    """For `git fast-import`, which takes each name once: as a file or as a folder."""
    yield b"commit refs/heads/main\ncommitter a <a@example.org> 0 +0000\ndata 0\n"
    for path, (mode, size) in tree.items():
        if any(other.startswith(f"{path}/") for other in tree):
            continue
        if mode == GITLINK:
            yield b"M 160000 %b %b\n" % (b"1" * 40, path.encode())
        else:
            content = b"x" * max(1, size)
            yield b"M %b inline %b\ndata %d\n%b\n" % (mode, path.encode(), len(content), content)


def archived(folder: str, prefix: str) -> int:
    """Bytes of its members."""
    argv = [f"--prefix={prefix}/"] if prefix else []
    cut = Members(inner=True)
    n_bytes = len(cut.feed(git(folder, "archive", "--format=tar", *argv, "main")))
    assert cut.over
    return n_bytes


@settings(max_examples=20, deadline=None)
@given(tree=TREES, prefix=st.just("") | PATHS)
def test_an_archive_is_never_larger_than_was_counted(tree, prefix):
    with tempfile.TemporaryDirectory() as folder:
        git(folder, "init", "-q", "--bare")
        git(folder, "fast-import", "--quiet", given=b"".join(importable(tree)))
        entries = list(read_entries(git(folder, "ls-tree", "-r", "-z", "-l", "--full-tree", "main")))
        took, counted = archived(folder, prefix), tree_bytes(entries, folder=prefix)
    assert took <= counted
    longest = max((len(f"{prefix}/{entry.path}".encode()) for entry in entries), default=0)
    if longest < 100 and not prefix:
        assert took == counted


@pytest.mark.parametrize(
    ("path", "size", "blocks"),
    [
        ("a", 0, 1),
        ("a", 513, 3),
        ("n" * 100, 0, 1),
        ("n" * 101, 0, 3),
        ("n" * 101, 1, 4),
        ("ü" * 60, 0, 3),
        ("n" * 600, 0, 4),
    ],
)
def test_a_long_name_takes_a_header_of_its_own_and_its_block(path, size, blocks):
    assert entry_bytes(path, size) == blocks * 512


@given(
    path=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=700),
    size=st.integers(0, 2000),
)
def test_content_takes_what_stands_in_front_of_it_too(path, size):
    whole = file_head(path, size, is_program=True) + bytes(size) + bytes(-size % 512)
    assert file_bytes(path, size) == len(whole)
    assert len(whole) % 512 == 0
