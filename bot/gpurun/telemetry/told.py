"""What an agent says of its job, as values. It is a claim: bounded, cleaned, masked, and green only where it may be."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gpurun.domain.run import Result, ResultKind
from gpurun.domain.text import clean
from gpurun_agent import protocol

MAX_TEXT = 300
MAX_DETAIL = 4000

_WORD = re.compile(r"[a-z0-9_]{1,40}")
_EXIT_CODE = re.compile(r"-?[0-9]{1,10}")
_RESULTS = {
    protocol.PASSED: ResultKind.PASSED,
    protocol.FAILED: ResultKind.FAILED,
    protocol.TIMEOUT: ResultKind.TIMEOUT,
    protocol.CANCELLED: ResultKind.CANCELLED,
    protocol.LOST: ResultKind.LOST,
}


def result_of(fields: Mapping[str, bytes], mask: Callable[[bytes], bytes]) -> Result:
    """The records of `finish`. A word that we do not know is lost(agent); so is a pass without exit code 0.

    `mask` is only called when there is something to mask.
    """
    word = text_of(fields.get("result", b""))
    code = text_of(fields.get("exit_code", b""))
    exit_code = int(code) if _EXIT_CODE.fullmatch(code) and abs(int(code)) < 2**31 else None
    reason = text_of(fields.get("reason", b""))
    said = fields.get("detail", b"")
    detail = clean(mask(said))[:MAX_DETAIL] if said else ""
    left = fields.get("left_out", b"")
    left_out = clean(mask(left))[:MAX_DETAIL] if left else ""
    kind = _RESULTS.get(word)
    if kind is ResultKind.PASSED and exit_code != 0:
        kind, detail = None, f"The agent said passed with exit code {exit_code}."
    if kind is None:
        return Result(
            kind=ResultKind.LOST, reason=protocol.AGENT, exit_code=exit_code, detail=detail, left_out=left_out
        )
    if not _WORD.fullmatch(reason):
        reason = protocol.AGENT
    return Result(kind=kind, exit_code=exit_code, reason=reason, detail=detail, left_out=left_out)


def text_of(value: bytes) -> str:
    """One line of harmless text."""
    return clean(value[: 4 * MAX_TEXT]).replace("\n", " ").strip()[:MAX_TEXT]
