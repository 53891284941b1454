"""Sizes, durations and GPU needs as people write them in `.gpurun.yml`."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_DURATION_S = 7 * 24 * 3600
"""The longest duration that may be written."""

_DURATION = r"([1-9][0-9]{0,6})(s|m|h)"
_SIZE = r"([1-9][0-9]{0,8})(MB|GB|TB)"
_COUNT = r"[0-9]{1,2}"
_CPU = r"([0-9]{1,4}(?:\.[0-9]{1,2})?)(\.\.)?"
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_MIB = {"MB": 1, "GB": 1024, "TB": 1024 * 1024}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNeed:
    """How many GPUs, each with how much memory. Zero means: any."""

    count: int
    vram_min_mib: int = 0
    vram_max_mib: int = 0

    def __str__(self) -> str:
        """In the grammar of the file: `24GB..80GB:2`."""
        memory = written_size(self.vram_min_mib) if self.vram_min_mib else ""
        if self.vram_max_mib:
            memory += f"..{written_size(self.vram_max_mib)}"
        return f"{memory}:{self.count}" if memory else str(self.count)


def quoted(text: str) -> str:
    """What a person wrote, in quotes, short and printable, for an error message."""
    return repr(text if len(text) <= 60 else text[:59] + "…")


def duration_s(text: str) -> int:
    """`90s`, `30m`, `2h` in seconds. Raises ValueError with a sentence."""
    if re.fullmatch(r"0+(s|m|h)", text):
        raise ValueError(f"{quoted(text)} is too short. Write at least 1s")
    if re.fullmatch(r"[1-9][0-9]{7,}(s|m|h)", text):
        raise _too_long(text)
    found = re.fullmatch(_DURATION, text)
    if found is None:
        raise ValueError(f"{quoted(text)} is no duration. Write 90s, 30m or 2h")
    seconds = int(found.group(1)) * _SECONDS[found.group(2)]
    if seconds > MAX_DURATION_S:
        raise _too_long(text)
    return seconds


def _too_long(text: str) -> ValueError:
    shown = text if len(text) <= 20 else quoted(text)
    return ValueError(f"{shown} is longer than {MAX_DURATION_S // 3600}h, the most that can be asked for")


def written_duration(seconds: int) -> str:
    """As it may stand in the file: `90s`, `30m`, `2h`."""
    for unit, length_s in (("h", 3600), ("m", 60)):
        if seconds and seconds % length_s == 0:
            return f"{seconds // length_s}{unit}"
    return f"{seconds}s"


def written_size(mib: int) -> str:
    """As it may stand in the file: `512MB`, `24GB`, `1TB`."""
    for unit, length_mib in (("TB", _MIB["TB"]), ("GB", _MIB["GB"])):
        if mib and mib % length_mib == 0:
            return f"{mib // length_mib}{unit}"
    return f"{mib}MB"


def size_mib(text: str) -> int:
    """`512MB`, `24GB`, `1TB` in MiB; 1GB is 1,024 MiB, as GPU makers count. Raises ValueError with a sentence."""
    found = re.fullmatch(_SIZE, text)
    if found is None:
        raise ValueError(f"{quoted(text)} is no size. {_size_meant(text)}")
    return int(found.group(1)) * _MIB[found.group(2)]


def _size_meant(text: str) -> str:
    """What to write for a size in another spelling."""
    found = re.fullmatch(r"\s*([1-9][0-9]{0,8})\s*([MGT])(?:I?B)?\s*", text, re.IGNORECASE | re.ASCII)
    if found is None:
        return "Write 512MB, 24GB or 1TB"
    return f"Write {found.group(1)}{found.group(2).upper()}B, in upper case and without a space; 1GB is 1024MB"


def least_size_mib(text: str) -> int:
    """`32GB` or `32GB..`: at least so much. Raises ValueError with a sentence."""
    return size_mib(text.removesuffix(".."))


def least_cpus(text: str) -> float:
    """`8`, `0.5` or `8..`: at least so many. Raises ValueError with a sentence."""
    found = re.fullmatch(_CPU, text)
    if found is None or float(found.group(1)) == 0:
        raise ValueError(f"{quoted(text)} is no number of CPUs. Write 8, 0.5 or 8..")
    return float(found.group(1))


def gpu_need(text: str) -> GpuNeed:
    """`1`, `24GB`, `24GB..80GB:2`: memory of each, then how many. Raises ValueError with a sentence.

    A single size is the least: `24GB` is the same as `24GB..`.
    """
    if re.fullmatch(_COUNT, text):
        return GpuNeed(count=int(text))
    memory, _, count = text.partition(":")
    low, is_range, high = memory.partition("..")
    if count and re.fullmatch(r"[0-9]*\.\.[0-9]*", count):
        raise ValueError("a range of counts is not in this version. Write one number, such as 24GB..80GB:2")
    if count and not (re.fullmatch(_COUNT, count) and int(count) > 0):
        raise ValueError(f"{quoted(count)} is no number of GPUs. Write 24GB:2 for two GPUs of at least 24 GB")
    try:
        need = GpuNeed(
            count=int(count or 1),
            vram_min_mib=size_mib(low) if low or not is_range else 0,
            vram_max_mib=size_mib(high) if high else 0,
        )
    except ValueError as exc:
        raise ValueError(
            f"{quoted(text)} is no GPU need. Write a count (1), memory (24GB..80GB), or both (24GB..80GB:2); "
            "GPU names are not in this version"
        ) from exc
    if need.vram_max_mib and need.vram_max_mib < need.vram_min_mib:
        raise ValueError(f"{memory} runs backwards. Write the smaller size first")
    return need
