"""Platforms as image registries write them, `linux/arm64/v8`, and which of them a machine runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_ARCHITECTURES: Mapping[str, str] = {
    "x86_64": "amd64",
    "x86-64": "amd64",
    "aarch64": "arm64",
    "armv8l": "arm64",
    "armhf": "arm/v7",
    "armv7l": "arm/v7",
    "armv6l": "arm/v6",
    "armel": "arm/v6",
    "i386": "386",
    "i686": "386",
}
"""What kernels and packages say. Source: github.com/containerd/platforms, `database.go` (2026-12-01)."""
_ARM = ("arm/v8", "arm/v7", "arm/v6", "arm/v5")
_ALSO_RUNS: Mapping[str, tuple[str, ...]] = {
    "amd64": ("386",),
    "arm64": _ARM,
    **{one: _ARM[number + 1 :] for number, one in enumerate(_ARM)},
}
"""By the processor itself. Source: there, `compare.go`, as container engines choose from an index."""


def platform_of_machine(os: str, architecture: str) -> str:
    """Of what a machine says of itself, `linux` and `x86_64`; empty when it does not say both."""
    if not os or not architecture:
        return ""
    known = architecture.lower()
    return f"{os.lower()}/{_ARCHITECTURES.get(known, known)}"


def runs_one_of(machine: str, platforms: Iterable[str]) -> bool:
    """Whether a machine runs an image that is for these. Emulation, which some machines have, is not counted on.

    `amd64/v3` asks for a processor that the machine may have: only the start will show.
    """
    os, _, own = machine.partition("/")
    can = {_plain(own), *_ALSO_RUNS.get(_plain(own), ())}
    return any(of == os and _plain(arch) in can for of, _, arch in (one.partition("/") for one in platforms))


def _plain(architecture: str) -> str:
    """Without a variant that says nothing, or only how new the processor must be; 32-bit ARM is v7 if not said."""
    base, _, variant = architecture.partition("/")
    if base == "arm":
        return f"arm/{variant or 'v7'}"
    return base
