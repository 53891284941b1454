"""The boot script, the names it reads, and what its last words mean.

Exit codes: 77 no agent, 78 no Python that can run it, 79 it ran here before; any other is the agent's (0 reported,
75 could not reach the bot, 1 broken before it could report, 143 and 137 ended by TERM and KILL).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

ENV_ATTEMPT = "GPURUN_ATTEMPT"
"""Attempt id."""
ENV_DEADLINE = "GPURUN_DEADLINE"
"""Hard end, unix seconds. 0 or absent: only the time to live counts."""
ENV_TTL = "GPURUN_TTL"
"""Seconds from the start to the end, whatever the instance's clock says. Default one day."""
ENV_GRACE = "GPURUN_GRACE"
"""Seconds between TERM and KILL at the end. Default 10."""
ENV_SHA256 = "GPURUN_SHA256"
"""SHA-256 of the agent zip, lower-case hex."""
ENV_AGENT = "GPURUN_AGENT"
"""Where the agent zip was put. Absent: it is fetched."""
ENV_URL = "GPURUN_URL"
"""Where the agent zip can be fetched from."""
ENV_PYTHON = "GPURUN_PYTHON"
"""An interpreter to be tried first."""
ENV_UPLINK = "GPURUN_UPLINK"
"""`unix:<socket>`, `https://…` or `http://…`."""
ENV_CLAIM = "GPURUN_CLAIM"
"""The claim token."""
ENV_ROOT = "GPURUN_ROOT"
"""Internal: another place than `/gpurun`, for tests."""

EXIT_NO_AGENT = 77
EXIT_NO_PYTHON = 78
EXIT_RAN_BEFORE = 79
EXIT_UNREPORTED = 75

MAX_SCRIPT_CHARS = 4096
"""Clouds that take a start command allow little more."""

_PREFIX = b"::gpurun-boot 1 "

_SENTENCES = {
    "no-python3": "There is no python3 in the image; the agent needs Python 3.8 or newer.",
    "old-python": "The Python in the image is too old; the agent needs Python 3.8 or newer.",
    "agent-hash": "The agent in the instance is not the one that was sent (its hash is wrong).",
    "agent-fetch": "The instance could not fetch the agent from the bot.",
    "ran-before": "The provider started the container a second time.",
    "missing-module": "The Python in the image is incomplete: it has no module {rest}.",
    "agent": "The agent broke before it could report: {rest}",
}


_EXITS = {
    0: "The agent in it ended as it should.",
    EXIT_UNREPORTED: "The agent in it could not reach the bot.",
    EXIT_NO_AGENT: "It had no agent, or another one than was sent.",
    EXIT_NO_PYTHON: "No Python in the image can run the agent.",
    EXIT_RAN_BEFORE: "The provider started the container a second time.",
    137: "The agent in it was killed (exit code 137), by the job, by a person, or because memory ran out.",
    143: "It was told to stop (exit code 143), and not by gpurun.",
}


def boot_script() -> str:
    """POSIX sh, at most `MAX_SCRIPT_CHARS`, for dash and busybox ash. Run it as PID 1: `/bin/sh /gpurun/boot.sh`."""
    return files(__package__).joinpath("boot.sh").read_text(encoding="ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class BootMarker:
    """The word of the boot script that matters most. Believe it only while the attempt is unclaimed: afterwards the
    user's code can write such lines as well.
    """

    words: tuple[str, ...]
    """`("error", "no-python3")`, `("deadline",)`, `("exit", "137")`, `("note", …)`."""

    @property
    def sentence(self) -> str:
        """What a person reads."""
        match self.words:
            case ("error", word, *rest):
                known = _SENTENCES.get(word, "The boot script stopped: {word} {rest}")
                return known.format(word=word, rest=" ".join(rest)).strip()
            case ("deadline", *_):
                return "The instance reached its deadline."
            case ("exit", code, *_):
                return exit_sentence(int(code)) if code.isdigit() else f"The agent ended with exit code {code}."
            case _:
                return "The boot script said: " + " ".join(self.words)


def exit_sentence(code: int) -> str:
    """What an instance's exit code says, for people."""
    return _EXITS.get(code, f"The agent in it ended with exit code {code}.")


def boot_marker(log: bytes, attempt_id: str) -> BootMarker | None:
    """The marker of this attempt in what the provider kept: the first error, else the deadline, else the last."""
    head = _PREFIX + attempt_id.encode() + b" "
    found = [
        BootMarker(words=tuple(line[len(head) :].decode("utf-8", "replace").split()))
        for line in log.splitlines()
        if line.startswith(head) and line[len(head) :].strip()
    ]
    for kind in ("error", "deadline"):
        for marker in found:
            if marker.words[0] == kind:
                return marker
    return found[-1] if found else None
