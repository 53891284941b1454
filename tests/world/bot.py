"""`gpurun serve` as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import httpx

from ops.local_services import free_port

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0


class BotProcess:
    """Can be killed, stopped and started again on the same state."""

    def __init__(self, environment: Mapping[str, str], log: Path, url: str) -> None:
        self._environment = environment
        self._log = log
        self._url = url
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, **more: str) -> None:
        """Answers when this returns. `more`: settings for this start only."""
        self._spawn(more)
        with anyio.fail_after(START_TIMEOUT_S):
            await self._answers()

    async def start_and_die(self, failpoint: str) -> None:
        """On its way through the work that waits for it, it kills itself there before this returns."""
        self._spawn(dying_at(failpoint))
        await self.death()

    async def death(self) -> None:
        """It has been killed by a failpoint."""
        assert self._process is not None
        with anyio.fail_after(START_TIMEOUT_S):
            while (code := self._process.poll()) is None:
                await anyio.sleep(0.02)
        assert code == -signal.SIGKILL, f"the bot ended with {code}:\n{self.output()}"

    def _spawn(self, more: Mapping[str, str]) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gpurun", "serve"],
                env={"PATH": os.getenv("PATH", ""), **self._environment, **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def _answers(self) -> None:
        assert self._process is not None
        async with httpx.AsyncClient(timeout=2) as client:
            while True:
                try:
                    if (await client.get(f"{self._url}/healthz")).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                assert self._process.poll() is None, f"the bot did not start:\n{self.output()}"
                await anyio.sleep(0.05)

    def twin(self) -> BotProcess:
        """Another process on the same database and the same folders, not started yet, with a port of its own."""
        port = free_port()
        environment = {**self._environment, "GPURUN_PORT": str(port)}
        return BotProcess(environment, self._log.with_name("twin.log"), f"http://127.0.0.1:{port}")

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    async def stop(self) -> int:
        """SIGTERM; the exit code. Silent when it is not running."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        with anyio.fail_after(STOP_TIMEOUT_S):
            return await anyio.to_thread.run_sync(self._process.wait)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def output(self) -> str:
        """Everything it ever wrote, over all starts."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""


def dying_at(failpoint: str) -> dict[str, str]:
    """Settings for `start`: it kills itself there."""
    return {"GPURUN_FAILPOINT": failpoint, "GPURUN_ALLOW_FAILPOINTS": "1"}
