"""Patterns over one name."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun_agent.globs import glob


@pytest.mark.parametrize(
    ("name", "pattern", "fits"),
    [
        (b"abc", b"a*c", True),
        (b"abc", b"a?c", True),
        (b"abc", b"a[b]c", True),
        (b"abc", b"a[!b]c", False),
        (b"abc", b"[a-c]*", True),
        (b".abc", b"*", True),
        (b"[", b"[", True),
        (b"]", b"[]]", True),
        (b"abc", b"ab", False),
        (b"", b"*", True),
    ],
)
def test_one_name(name, pattern, fits):
    assert glob(name, pattern) == fits


WORDS = st.text(alphabet="ab*?", max_size=12)


@given(name=st.text(alphabet="ab", max_size=12), pattern=WORDS)
def test_names_match_as_in_the_shell(name, pattern):
    assert glob(name.encode(), pattern.encode()) == fnmatch.fnmatchcase(name, pattern)


def test_many_stars_do_not_keep_the_agent_busy():
    """It would neither stream nor hear that it shall stop."""
    assert not glob(b"a" * 255, b"*a" * 120 + b"b")
    assert glob(b"a" * 255, b"*a" * 120 + b"*")
