"""The host watchdogs of this machine, as the process table shows them."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """One of them."""

    pid: int

    @property
    def environment(self) -> bytes:
        return Path(f"/proc/{self.pid}/environ").read_bytes()

    @property
    def open_files(self) -> set[str]:
        return {str(one.readlink()) for one in Path(f"/proc/{self.pid}/fd").iterdir()}

    @property
    def resident_mib(self) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def watchdogs(folder: Path) -> list[Process]:
    """Those whose lock lies in `folder`. A zombie has no words any more."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes()
            if b"\0gpurun-watchdog\0" in words and f"\0{folder.resolve()}/".encode() in words:
                found.append(Process(int(process.name)))
    return found


def end_watchdogs(folder: Path) -> None:
    """So that a test leaves none behind. They would go away by themselves after some minutes."""
    for one in watchdogs(folder):
        with contextlib.suppress(ProcessLookupError):
            one.kill()
