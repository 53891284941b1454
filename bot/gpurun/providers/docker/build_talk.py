"""What the engine says while it builds: the output for people, how far it is, and why it failed."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpurun.domain.errors import GpurunError, ProviderRefused, ProviderUnavailable
from gpurun.providers.docker.build_call import NotBuilt
from gpurun.providers.docker.container import Limits, about
from gpurun_agent.protocol import Foreign

MAX_OUTPUT_BYTES = 4 * 1024 * 1024
TOO_MUCH = b"\n::gpurun:: the build says more than is kept; what follows is not shown\n"

_STEP = re.compile(r"Step (\d{1,4})/(\d{1,4}) : ")
_LAYER = re.compile(r" ---> ([0-9a-f]{12})\n")
_HOST_FAULTS = ("no space left on device", "cannot allocate memory", "input/output error")
_KILLED = 137


@dataclass(frozen=True, slots=True)
class Failed:
    """The Dockerfile cannot be built."""

    said: str
    step: int


class BuildTalk:
    """Of one try. Written by its thread, read by others."""

    def __init__(self) -> None:
        self.message = "building image"
        """For people."""
        self.step = 0
        """That goes on, counted as the engine does; 0 before the first."""
        self._output = bytearray()
        self._foreign = Foreign()
        self._layer = ""
        self._stages: list[str] = []
        self._is_closed = False
        self._lock = threading.Lock()

    def output(self) -> bytes:
        """All of it so far."""
        with self._lock:
            return bytes(self._output)

    def close(self) -> None:
        """What is said from now on is not kept: everybody was told that there is no more."""
        with self._lock:
            self._is_closed = True

    def say(self, said: bytes) -> None:
        """Puts it below the rest."""
        with self._lock:
            room = MAX_OUTPUT_BYTES - len(self._output)
            if room > 0 and not self._is_closed:
                self._output += said if len(said) <= room else said[:room] + TOO_MUCH

    def take(self, event: Mapping[str, Any], limits: Limits) -> Failed | GpurunError | None:
        """One event of the build; why it failed when it tells that."""
        said = event.get("stream")
        if isinstance(said, str):
            self._hear(said)
            return None
        layer = (event.get("aux") or {}).get("ID") if isinstance(event.get("aux"), dict) else None
        if isinstance(layer, str):
            self._stages.append(layer)
        detail = event.get("errorDetail") or {}
        error = str(detail.get("message") or event.get("error") or "")
        if not error:
            return None
        self.say(self._foreign.take(f"{error}\n".encode("utf-8", "replace")))
        return _why_failed(error, detail.get("code"), self.step, limits)

    def unnamed_layers(self, *, failed: bool) -> list[str]:
        """The stages before the last one; of a build that failed how far it came."""
        if not failed:
            return self._stages[:-1]
        return [*self._stages, *([self._layer] if self._layer else [])]

    def _hear(self, said: str) -> None:
        step = _STEP.match(said)
        if step is not None and int(step[1]) == self.step + 1:
            self.step = int(step[1])
            self.message = f"building image, step {step[1]}/{step[2]}"
        layer = _LAYER.fullmatch(said)
        self._layer = layer[1] if layer is not None else self._layer
        self.say(self._foreign.take(said.encode("utf-8", "replace")))


def refused(answer: NotBuilt) -> Failed | GpurunError:
    """What an answer means that is no build."""
    said = " ".join(answer.said.split())[:300]
    if 400 <= answer.status < 500:
        return Failed(said, 0)
    return ProviderUnavailable(f"Docker could not build: {said}")


def _why_failed(error: str, code: object, step: int, limits: Limits) -> Failed | GpurunError:
    said = " ".join(error.split())[:300]
    if code is None and any(sign in error.lower() for sign in _HOST_FAULTS):
        return ProviderRefused(f"Docker could not build: {said}", kind="capacity")
    if code == _KILLED:
        limit = about(limits.memory_mib)
        said += f". It was killed, most often because the {limit} of memory ran out: `resources: {{memory: …}}` is more"
    return Failed(said, step)
