"""What is known is said, not guessed."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest

from gpurun.domain.plan import Resources
from gpurun.domain.run import ResultKind, Verdict
from gpurun.report.check import render_check
from gpurun.report.comment import render_comment
from gpurun.report.facts import RunFacts
from gpurun.report.pieces import gpu_notes
from gpurun.report.terminal import render_terminal
from gpurun.report.why import why
from gpurun_agent.gpu import parse as parse_rows
from gpurun_agent.run import Run
from tests.unit.report.situations import FULL, ended, with_result

KILLED = "Ended by signal 9. The kernel killed 1 process(es) of the container for memory."


def test_out_of_memory_names_the_limit_and_the_key():
    run = ended(Verdict.FAILED, reason="exit")
    run = replace(run, plan=replace(run.plan, resources=Resources(memory_mib=128)))
    attempt = with_result(ResultKind.FAILED, exit_code=137, reason="exit", detail=KILLED)
    said = why(replace(FULL, run=run, attempts=(attempt,), log_tail=b"")).sentence
    assert said.endswith("The container's memory of 128 MiB ran out: ask for more with `resources: {memory: …}`.")


def test_a_child_that_was_killed_for_memory_is_told_too():
    run = ended(Verdict.FAILED, reason="exit")
    attempt = with_result(ResultKind.FAILED, exit_code=3, reason="exit", detail=KILLED)
    assert "memory" in why(replace(FULL, run=run, attempts=(attempt,), log_tail=b"")).sentence


def test_the_words_are_those_of_the_agent():
    from gpurun_agent.run import _describe

    assert _describe(137, 1) == KILLED


SICK = "GPU trouble: nvidia-smi says [Unknown Error] for power.draw of GPU 1 (3 times)."
NONE = "No GPU metrics: nvidia-smi ended with code 6, saying: No devices were found. Sorry. (2 times)."


def seen(detail: str, *, gpus: int = 0) -> RunFacts:
    run = replace(FULL.run, plan=replace(FULL.run.plan, resources=Resources(gpus=gpus)))
    return replace(FULL, run=run, attempts=(with_result(ResultKind.PASSED, exit_code=0, reason="exit", detail=detail),))


@pytest.mark.parametrize("render", [render_comment, lambda facts: render_check(facts).summary])
def test_b112_a_sick_gpu_is_told_although_the_run_passed(render):
    assert "**GPU trouble:** nvidia-smi says \\[Unknown Error\\] for power.draw of GPU 1 (3 times)." in render(
        seen(f"Ended by signal 9. {SICK} {NONE}")
    ).split("\n")


def test_b112_a_sick_gpu_is_told_in_the_terminal():
    assert "nvidia-smi says [Unknown Error] for power.draw of GPU 1 (3 times)." in render_terminal(seen(SICK)).table


def test_b117_missing_gpu_metrics_are_told_to_whoever_asked_for_a_gpu():
    assert gpu_notes(seen(f"{SICK} {NONE}", gpus=1)) == [
        ("GPU trouble", SICK.partition(": ")[2]),
        ("No GPU metrics", NONE.partition(": ")[2]),
    ]
    assert gpu_notes(seen(NONE)) == []


@pytest.mark.parametrize("detail", ["", "GPU trouble: ", "GPU trouble: " * 5000, "No GPU metrics: x"])
def test_other_words_are_no_note_and_cost_little(detail):
    assert gpu_notes(seen(detail, gpus=1)) == []


def test_the_notes_are_those_of_the_agent():
    for word in ("[Unknown Error]", "[GPU is lost]", "ERR!", "[GPU requires reset]"):
        (what,) = parse_rows(f"0, GPU-0, NVIDIA A100, PCIe, 9, 1, 2, {word}, 4, 5")[0].sick()
        assert gpu_notes(seen(f"GPU trouble: {what} (once).")) == [("GPU trouble", f"{what} (once).")]
    missing = "No GPU metrics: there is no nvidia-smi in this container."
    assert missing in inspect.getsource(Run)
    assert len(gpu_notes(seen(missing, gpus=1))) == 1
