"""Why a run did not pass, in a sentence, with the line of the log that says most."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpurun.domain.run import Run, Verdict
from gpurun.domain.text import clean
from gpurun.report.facts import RunFacts
from gpurun.report.text import duration, one_line
from gpurun.report.unpinned import unpinned

_EXIT_WORDS = {
    126: "a file was found and cannot be executed; `chmod +x` it, or name its interpreter",
    127: "a command was not found; install it in `setup` or in the image, or correct its name",
    130: "interrupted (SIGINT)",
    132: "illegal instruction (SIGILL); the program may be built for another CPU",
    134: "aborted (SIGABRT)",
    135: "bus error (SIGBUS); `/dev/shm` may be too small, see `shm_size`",
    136: "arithmetic error (SIGFPE)",
    137: "killed (SIGKILL), most often because memory ran out",
    139: "segmentation fault (SIGSEGV), a crash in compiled code",
    141: "broken pipe (SIGPIPE)",
    143: "terminated (SIGTERM), not by gpurun but by the job itself or something in it",
}
_KILLED_NOT_FOR_MEMORY = "killed (SIGKILL), and not for memory: the job itself or something in it did it"
_ERROR_LINE = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Fault)\b.*", re.ASCII)
_TRACEBACK = "Traceback (most recent call last):"
_GPU_MEMORY = re.compile(r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED")
_SHM = re.compile(
    r"insufficient shared memory|unable to (?:mmap|open shared memory|allocate shared memory)", re.IGNORECASE
)
_OFFLINE = re.compile(r"LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled")
_DISK = re.compile(r"No space left on device")
_KILLED_FOR_MEMORY = re.compile(
    r"The kernel killed (\d{1,6}) process\(es\) of the container for memory(?: \(limit (\d{1,9}) MiB\))?\."
)
_NOT_FOR_MEMORY = "No process was killed for memory."
_BY_SIGNAL = re.compile(r"\bEnded by signal \d+\.")
"""The agent's words: what the kernel told it of the command's end and of its control group."""
_SHELL_LINE = re.compile(
    r"^(?:\S*/)?(?:sh|ash|bash|dash)?\S*: .*(?:not found|[Pp]ermission denied|[Ee]xec format|cannot open)"
)
"""What shells and the loader print before they end with 126 or 127."""


@dataclass(frozen=True, slots=True)
class Why:
    """Both are untrusted."""

    sentence: str
    evidence: str = ""
    """A line of the log."""


def why(facts: RunFacts) -> Why:  # noqa: PLR0911 - one return a verdict
    """Empty for a run that has not ended, and for one that passed without anything to be told."""
    run = facts.run
    match run.verdict:
        case None:
            return Why("")
        case Verdict.PASSED:
            return Why(_memory_note(facts))
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


def _how_it_ended(code: int, detail: str) -> str:
    """After "`run` …": by which code or signal, and what that means."""
    killed = code == 137
    if killed and _KILLED_FOR_MEMORY.search(detail):
        return "was killed, out of memory (exit code 137)"
    words = _KILLED_NOT_FOR_MEMORY if killed and _NOT_FOR_MEMORY in detail else _EXIT_WORDS.get(code)
    if _BY_SIGNAL.search(detail):
        return f"was ended by signal {code - 128} (exit code {code})" + (f": {words}" if words else "")
    return f"ended with exit code {code}: {words}" if words else f"ended with exit code {code}"


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
        return f"{command} {_how_it_ended(code, result.detail if result else '')}.{_known_cause(facts)}"
    return run.detail or (f"It failed ({run.reason})." if run.reason else "It failed.")


def _known_cause(facts: RunFacts) -> str:
    if note := _memory_note(facts):
        return f" {note}"
    log = clean(facts.log_tail[-16_384:])
    if _GPU_MEMORY.search(log):
        return " The GPU's memory ran out."
    if _SHM.search(log):
        return " Shared memory ran out: set `resources: {shm_size: …}`."
    if _OFFLINE.search(log):
        return f" {unpinned(facts.run.plan, log)}"
    if _DISK.search(log):
        return " The disk is full."
    return ""


def _memory_note(facts: RunFacts) -> str:
    """That the kernel killed something for memory; empty when it did not."""
    result, plan = facts.attempt.result if facts.attempt else None, facts.run.plan
    found = _KILLED_FOR_MEMORY.search(result.detail) if result is not None else None
    if found is None:
        return ""
    limit = found[2] or (str(plan.resources.memory_mib) if plan and plan.resources.memory_mib else "")
    had = f" of {limit} MiB" if limit else ""
    what = "1 process" if found[1] == "1" else f"{found[1]} processes"
    return (
        f"The container's memory{had} ran out, and the kernel killed {what}: "
        "ask for more with `resources: {memory: …}`."
    )


def _telling_line(facts: RunFacts) -> str:
    """The exception behind the last traceback, else the last line that looks like one."""
    lines = [line for line in clean(facts.log_tail).split("\n") if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.strip().endswith(_TRACEBACK)]
    if starts:
        for line in lines[starts[-1] + 1 :]:
            if line[0] not in " \t|" and not line.startswith(("During handling", "The above exception")):
                return one_line(line, 300)
    result = facts.attempt.result if facts.attempt else None
    telling = _SHELL_LINE if result is not None and result.exit_code in (126, 127) else _ERROR_LINE
    return next((one_line(line, 300) for line in reversed(lines[-50:]) if telling.match(line)), "")
