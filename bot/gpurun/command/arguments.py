"""The `key=value` arguments of commands: how each is written, and what it means. Each reader raises ValueError with a
sentence, and often a second one that says what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpurun.domain.config_values import PROVIDER_ID
from gpurun.domain.quantity import gpu_need

PATH = "path"
SHA = "sha"
MAX_COST = "max-cost"
GPU = "gpu"
PROVIDER = "provider"
REPEAT = "repeat"
REASON = "reason"
USAGE = {
    PATH: f"{PATH}=<folder>",
    SHA: f"{SHA}=<commit>",
    MAX_COST: f"{MAX_COST}=<usd>",
    GPU: f"{GPU}=<size>",
    PROVIDER: f"{PROVIDER}=<id>",
    REPEAT: f"{REPEAT}=<2..5>",
    REASON: f'{REASON}="…"',
}
"""Those of this version, as they are typed."""

MAX_REPEAT = 5
MAX_REASON_CHARS = 300
DOUBLE_QUOTES = '"“”„‟«»'
"""Inside a reason they become single ones: a reason is shown in double quotes."""

_REASON = re.compile(rf"(?:^|(?<=\s)){REASON}=", re.IGNORECASE)
_CLOSES = {'"': '"“”', "“": '”"“', "„": '“”"', "«": "»", "'": "'’", "‘": "’'"}


def split_reason(rest: str) -> tuple[str, str | None]:
    """The line without its `reason=…`, and what stood there; None when there is none.

    A quoted one ends with its quote, any other with the line. Raises ValueError.
    """
    found = _REASON.search(rest)
    if found is None:
        return rest, None
    before, value = rest[: found.start()], rest[found.end() :]
    closing = _CLOSES.get(value[:1])
    if closing is None:
        return before, value
    end = re.search(rf"[{closing}](?=[\s.,:;!?]*(?:\s|$))", value[1:])
    if end is None:
        raise ValueError(f'the quotation mark behind `{REASON}=` is not closed. Write `{REASON}="…"`')
    return f"{before} {value[1:][end.end() :]}", value[1:][: end.start()]


def reason_of(given: Mapping[str, str]) -> str:
    """In one line, without double quotes."""
    text = " ".join("".join("'" if char in DOUBLE_QUOTES else char for char in given.get(REASON, "")).split())
    if not text:
        raise ValueError(f'it needs a reason that everybody can read. Write `{REASON}="…"` behind it')
    if len(text) > MAX_REASON_CHARS:
        raise ValueError(f"the reason is longer than {MAX_REASON_CHARS} characters. Write a shorter one")
    return text


def gpu_of(given: Mapping[str, str]) -> str:
    """As typed."""
    text = given.get(GPU, "")
    if GPU in given:
        gpu_need(text)
    return text


def provider_of(given: Mapping[str, str]) -> str:
    """Of those that this version knows."""
    return PROVIDER_ID.read(given[PROVIDER].lower()) if PROVIDER in given else ""


def sha_of(given: Mapping[str, str]) -> str:
    """The beginning of a commit's id, or all of it."""
    text = given.get(SHA, "").lower()
    if SHA in given and not re.fullmatch("[0-9a-f]{7,40}", text):
        raise ValueError(f"`{SHA}=` needs the first 7 to 40 hex digits of the newest commit. Its page shows them")
    return text


def repeat_of(given: Mapping[str, str]) -> int:
    """How many runs."""
    text = given.get(REPEAT, "1")
    if REPEAT in given and not re.fullmatch(f"[2-{MAX_REPEAT}]", text):
        raise ValueError(f"`{REPEAT}=` needs a number from 2 to {MAX_REPEAT}. Write `{REPEAT}=3` for three runs")
    return int(text)
