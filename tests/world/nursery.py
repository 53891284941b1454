"""Processes of gpurun that are there at once: one that has imported everything makes them by fork.

Each is a process of its own, with an environment and a log of its own, that runs `gpurun …` from its first line to its
end and can be killed like any other. The code is that of a real start; what it saves is a second of imports.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self


class Child:
    """As much of `subprocess.Popen` as a test needs."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._nursery.ask(poll=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Blocks. Raises TimeoutError."""
        descriptor = os.pidfd_open(self.pid) if self.poll() is None else None
        if descriptor is not None:
            ended, _, _ = select.select([descriptor], [], [], timeout)
            os.close(descriptor)
            if not ended:
                raise TimeoutError(f"gpurun did not end in {timeout} s")
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """`with Nursery() as nursery: nursery.spawn(["serve"], environment, log)`."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.world.served"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        """The children must have ended."""
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()

    def spawn(self, words: list[str], environment: Mapping[str, str], log: Path, *, cwd: Path | None = None) -> Child:
        """`gpurun <words>`. It writes to the end of `log`."""
        pid = self.ask(words=words, environment=dict(environment), log=str(log), cwd=str(cwd or Path.cwd()))
        return Child(self, pid)

    def ask(self, **question: Any) -> Any:
        """One line there, one back."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the nursery ended"
        return json.loads(line)
