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
    assert said == (
        "`run` was killed, out of memory (exit code 137). The container's memory of 128 MiB ran out, and the kernel "
        "killed 1 process: ask for more with `resources: {memory: …}`."
    )


def test_a_child_that_was_killed_for_memory_is_told_too():
    run = ended(Verdict.FAILED, reason="exit")
    attempt = with_result(ResultKind.FAILED, exit_code=3, reason="exit", detail=KILLED)
    assert "memory" in why(replace(FULL, run=run, attempts=(attempt,), log_tail=b"")).sentence


def told(code: int, detail: str = "", log: bytes = b"", *, kind: ResultKind = ResultKind.FAILED):
    run = ended(Verdict.PASSED if kind is ResultKind.PASSED else Verdict.FAILED, reason="exit")
    attempt = with_result(kind, exit_code=code, reason="exit", detail=detail)
    return why(replace(FULL, run=run, attempts=(attempt,), log_tail=log))


LIMITED = "The kernel killed 12 process(es) of the container for memory (limit 64 MiB)."
MEMORY = "The container's memory of 64 MiB ran out, and the kernel killed 12 processes: ask for more"


@pytest.mark.parametrize(
    ("code", "detail", "sentence"),
    [
        (137, f"Ended by signal 9. {LIMITED}", f"`run` was killed, out of memory (exit code 137). {MEMORY}"),
        (137, LIMITED, f"`run` was killed, out of memory (exit code 137). {MEMORY}"),
        (3, LIMITED, f"`run` ended with exit code 3. {MEMORY}"),
        (137, "", "`run` ended with exit code 137: killed (SIGKILL), most often because memory ran out."),
        (
            137,
            "Ended by signal 9. No process was killed for memory.",
            "`run` was ended by signal 9 (exit code 137): killed (SIGKILL), and not for memory: the job itself",
        ),
        (139, "Ended by signal 11.", "`run` was ended by signal 11 (exit code 139): segmentation fault (SIGSEGV)"),
        (139, "", "`run` ended with exit code 139: segmentation fault (SIGSEGV)"),
        (
            143,
            "Ended by signal 15.",
            "`run` was ended by signal 15 (exit code 143): terminated (SIGTERM), not by gpurun",
        ),
        (191, "Ended by signal 63.", "`run` was ended by signal 63 (exit code 191)."),
        (126, "", "`run` ended with exit code 126: a file was found and cannot be executed"),
        (127, "", "`run` ended with exit code 127: a command was not found"),
        (129, "", "`run` ended with exit code 129."),
    ],
)
def test_codes_and_signals_are_told_apart(code, detail, sentence):
    assert told(code, detail).sentence.startswith(sentence)


@pytest.mark.parametrize(
    "line",
    [
        "sh: 1: no-such-program: not found",
        "/bin/sh: no-such-program: not found",
        "bash: line 1: no-such-program: command not found",
        "sh: 1: ./x.sh: Permission denied",
        "python3: error while loading shared libraries: libcuda.so.1: cannot open shared object file",
    ],
)
def test_what_the_shell_said_is_the_evidence(line):
    assert told(127, log=f"ok\n{line}\n::gpurun:: done\n".encode()).evidence == line
    assert told(1, log=f"ok\n{line}\n".encode()).evidence == ""


def test_a_run_that_passed_tells_of_a_child_that_was_killed():
    assert told(0, LIMITED, kind=ResultKind.PASSED).sentence.startswith(MEMORY)
    assert told(0, kind=ResultKind.PASSED).sentence == ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((137, 9, 1, None), KILLED),
        ((137, 9, 12, 64), f"Ended by signal 9. {LIMITED}"),
        ((137, 9, 0, None), "Ended by signal 9. No process was killed for memory."),
        ((137, 0, None, None), ""),
        ((139, 11, 0, None), "Ended by signal 11."),
        ((3, 0, 12, 64), LIMITED),
        ((0, 0, 0, None), ""),
    ],
)
def test_the_words_are_those_of_the_agent(said, words):
    from gpurun_agent.run import _describe

    assert _describe(*said) == words


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
