"""Every case from the field has a test or a reason why it has none."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.field_cases import CASES, WITHOUT_TEST

TESTS = Path(__file__).parents[1]


def ids_of_names() -> dict[str, set[str]]:
    """Ids in the names of test functions, each with the files."""
    found: dict[str, set[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_b"):
                for number in re.findall(r"(?<=_b)\d{3}(?=_)", node.name):
                    found.setdefault(f"B{number}", set()).add(str(path.relative_to(TESTS)))
    return found


@pytest.fixture(scope="module")
def tested():
    return ids_of_names()


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_a_test_or_a_reason(tested, case):
    assert case in tested or case in WITHOUT_TEST, f"no test has `{case.lower()}` in its name: {CASES[case]}"


@pytest.mark.parametrize("case", WITHOUT_TEST)
def test_a_reason_is_for_a_case_without_a_test(tested, case):
    assert case in CASES
    assert case not in tested, f"{case} has a test, so it needs no reason"
