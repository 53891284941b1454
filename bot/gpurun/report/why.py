"""Why a run did not pass, in a sentence, with the line of the log that says most."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpurun.domain.run import Run, Verdict
from gpurun.report.facts import RunFacts
from gpurun.report.text import clean, duration, one_line

_EXIT_WORDS = {
    126: "the command cannot be executed",
    127: "the command was not found",
    130: "interrupted (SIGINT)",
    132: "illegal instruction (SIGILL); the program may be built for another CPU",
    134: "aborted (SIGABRT)",
    135: "bus error (SIGBUS); `/dev/shm` may be too small, see `shm_size`",
    136: "arithmetic error (SIGFPE)",
    137: "killed (SIGKILL), most often because memory ran out",
    139: "segmentation fault (SIGSEGV)",
    141: "broken pipe (SIGPIPE)",
    143: "terminated (SIGTERM)",
}
_ERROR_LINE = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Fault)\b.*", re.ASCII)
_TRACEBACK = "Traceback (most recent call last):"
_GPU_MEMORY = re.compile(r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED")
_SHM = re.compile(
    r"insufficient shared memory|unable to (?:mmap|open shared memory|allocate shared memory)", re.IGNORECASE
)
_OFFLINE = re.compile(r"LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled")
_DISK = re.compile(r"No space left on device")
_KILLED_FOR_MEMORY = re.compile(r"The kernel killed \d+ process\(es\) of the container for memory")
"""The agent's words when the counter of its control group rose."""


@dataclass(frozen=True, slots=True)
class Why:
    """Both are untrusted."""

    sentence: str
    evidence: str = ""
    """A line of the log."""


def why(facts: RunFacts) -> Why:
    """Empty for a run that passed or has not ended."""
    run = facts.run
    match run.verdict:
        case None | Verdict.PASSED:
            return Why("")
        case Verdict.CANCELLED:
            return Why(_cancelled(run))
        case Verdict.REFUSED:
            return Why(run.detail or f"The run was refused ({run.reason}).")
        case Verdict.LOST:
            return Why(run.detail or f"The run was lost ({run.reason or 'no reason is known'}).")
        case Verdict.TIMEOUT:
            return Why(_timeout(run), _telling_line(facts))
        case Verdict.FAILED:
            return Why(_failed(facts), _telling_line(facts))


def exit_words(code: int) -> str:
    """`exit code 137: killed (SIGKILL), …`."""
    words = _EXIT_WORDS.get(code)
    return f"exit code {code}: {words}" if words else f"exit code {code}"


def _cancelled(run: Run) -> str:
    if run.superseded_by:
        return "A newer run of this job took its place."
    return f"Cancelled by {run.cancel_by}." if run.cancel_by else run.detail or "Cancelled."


def _timeout(run: Run) -> str:
    if run.reason == "max_duration" or not run.detail:
        longest = f" ({duration(run.plan.max_duration_s)})" if run.plan else ""
        return f"Stopped: it ran longer than `max_duration`{longest}."
    return run.detail


def _failed(facts: RunFacts) -> str:
    run, result = facts.run, facts.attempt.result if facts.attempt else None
    code = result.exit_code if result else None
    if run.reason in ("exit", "setup", "") and code is not None:
        command = "`setup`" if run.reason == "setup" else "`run`"
        return f"{command} ended with {exit_words(code)}.{_known_cause(facts)}"
    return run.detail or (f"It failed ({run.reason})." if run.reason else "It failed.")


def _known_cause(facts: RunFacts) -> str:
    result = facts.attempt.result if facts.attempt else None
    if result is not None and _KILLED_FOR_MEMORY.search(result.detail):
        return _memory(facts.run)
    log = clean(facts.log_tail[-16_384:])
    if _GPU_MEMORY.search(log):
        return " The GPU's memory ran out."
    if _SHM.search(log):
        return " Shared memory ran out: set `resources: {shm_size: …}`."
    if _OFFLINE.search(log):
        return " It asked the hub for something that is not under `models:`; jobs see only what is pinned."
    if _DISK.search(log):
        return " The disk is full."
    return ""


def _memory(run: Run) -> str:
    limit_mib = run.plan.resources.memory_mib if run.plan else 0
    had = f" of {limit_mib} MiB" if limit_mib else ""
    return f" The container's memory{had} ran out: ask for more with `resources: {{memory: …}}`."


def _telling_line(facts: RunFacts) -> str:
    """The exception behind the last traceback, else the last line that looks like one."""
    lines = [line for line in clean(facts.log_tail).split("\n") if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.strip().endswith(_TRACEBACK)]
    if starts:
        for line in lines[starts[-1] + 1 :]:
            if line[0] not in " \t|" and not line.startswith(("During handling", "The above exception")):
                return one_line(line, 300)
    return next((one_line(line, 300) for line in reversed(lines[-50:]) if _ERROR_LINE.match(line)), "")
