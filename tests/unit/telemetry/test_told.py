"""The end of a job as its agent tells it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from gpurun.domain.run import ResultKind
from gpurun.telemetry.redact import Masker
from gpurun.telemetry.told import result_of


def as_it_is(said):
    return said


@pytest.mark.parametrize(
    ("fields", "result"),
    [
        ({"result": "passed", "exit_code": "0", "reason": "exit"}, (ResultKind.PASSED, 0, "exit")),
        ({"result": "passed", "exit_code": "1", "reason": "exit"}, (ResultKind.LOST, 1, "agent")),
        ({"result": "passed", "reason": "exit"}, (ResultKind.LOST, None, "agent")),
        ({"result": "failed", "exit_code": "137", "reason": "exit"}, (ResultKind.FAILED, 137, "exit")),
        ({"result": "failed", "exit_code": "-9", "reason": "exit"}, (ResultKind.FAILED, -9, "exit")),
        ({"result": "timeout", "reason": "max_duration"}, (ResultKind.TIMEOUT, None, "max_duration")),
        ({"result": "cancelled", "reason": "asked"}, (ResultKind.CANCELLED, None, "asked")),
        ({"result": "lost", "reason": "weights_mismatch"}, (ResultKind.LOST, None, "weights_mismatch")),
        ({"result": "preempted", "reason": "exit"}, (ResultKind.LOST, None, "agent")),
        ({"result": "great"}, (ResultKind.LOST, None, "agent")),
        ({}, (ResultKind.LOST, None, "agent")),
        ({"result": "failed", "exit_code": "9" * 10, "reason": "a b"}, (ResultKind.FAILED, None, "agent")),
        ({"result": "failed", "exit_code": "x", "reason": "exit"}, (ResultKind.FAILED, None, "exit")),
    ],
)
def test_results(fields, result):
    found = result_of({name: value.encode() for name, value in fields.items()}, as_it_is)
    assert (found.kind, found.exit_code, found.reason) == result


@given(st.dictionaries(st.sampled_from(["result", "exit_code", "reason", "detail"]), st.binary(max_size=60)))
def test_nothing_but_exit_code_zero_passes(fields):
    found = result_of(fields, as_it_is)
    assert found.kind is not ResultKind.PASSED or found.exit_code == 0


def test_the_detail_is_masked_and_cleaned():
    detail = b"\x1b[31mthe key hunter2-hunter2 \xff\n" + b"x" * 10_000
    masker = Masker([SecretStr("hunter2-hunter2")])
    found = result_of({"result": b"lost", "detail": detail}, masker.mask)
    assert found.detail.startswith("the key *************** \ufffd\n")
    assert len(found.detail) == 4000
