"""What is known is said, not guessed."""

from __future__ import annotations

from dataclasses import replace

from gpurun.domain.plan import Resources
from gpurun.domain.run import ResultKind, Verdict
from gpurun.report.why import why
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
