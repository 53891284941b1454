"""Every threat of `tests/threats.py` is held by tests that exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.threats import THREATS

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("threat", THREATS)
def test_every_threat_has_tests_and_each_is_there(threat):
    assert THREATS[threat]
    for named in THREATS[threat]:
        file, _, name = named.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert name in {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}, named
