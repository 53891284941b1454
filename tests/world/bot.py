"""`gpurun serve` as a process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import httpx

from ops.local_services import free_port
from tests.world.nursery import Child, Nursery

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0


class BotProcess:
    """Can be killed, stopped and started again on the same state."""

    def __init__(self, environment: Mapping[str, str], log: Path, url: str, *, nursery: Nursery | None = None) -> None:
        """With `nursery` its starts take a tenth of the time."""
        self.environment = environment
        self._log = log
        self._url = url
        self._nursery = nursery
        self._process: subprocess.Popen[bytes] | Child | None = None

    async def start(self, **more: str) -> None:
        """Answers when this returns. `more`: settings for this start only."""
        self.spawn(**more)
        await self.answers()

    async def start_and_die(self, failpoint: str) -> None:
        """On its way through the work that waits for it, it kills itself there before this returns."""
        self.spawn(**dying_at(failpoint))
        await self.death()

    async def death(self, *, within_s: float = START_TIMEOUT_S) -> str:
        """It has been killed by a failpoint, the name of which is the answer."""
        code = await self.ended(within_s=within_s)
        assert code == -signal.SIGKILL, f"the bot ended with {code}:\n{self.output()}"
        reached = re.findall(r'"failpoint": "([a-z_.]+)".*"failpoint_reached"', self.output())
        return str(reached[-1])

    async def ended(self, *, within_s: float = START_TIMEOUT_S) -> int:
        """Its exit code, once it ends by itself."""
        assert self._process is not None
        with anyio.fail_after(within_s):
            while (code := self._process.poll()) is None:
                await anyio.sleep(0.02)
        return code

    async def halt(self, *, within_s: float = START_TIMEOUT_S) -> None:
        """It has been halted by a failpoint and goes on by `thaw`."""
        with anyio.fail_after(within_s):
            while self._state() != "T":
                assert self.alive, f"the bot ended:\n{self.output()}"
                await anyio.sleep(0.02)

    def thaw(self) -> None:
        """It goes on, as if nothing had been. Silent when it is not halted or does not live."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)

    def _state(self) -> str:
        """As proc(5) has it; empty when there is no process."""
        assert self._process is not None
        try:
            return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(") ")[2][:1]
        except OSError:
            return ""

    def spawn(self, **more: str) -> None:
        """It has begun to start, with settings `more` for this start only."""
        assert not self.alive, "nobody would end the one that is there"
        environment = {"PATH": os.getenv("PATH", ""), **self.environment, **more}
        if self._nursery is not None:
            self._process = self._nursery.spawn(["serve"], environment, self._log)
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gpurun", "serve"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def answers(self) -> None:
        """It does, when this returns."""
        with anyio.fail_after(START_TIMEOUT_S):
            await self._first_answer()

    async def _first_answer(self) -> None:
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
        environment = {**self.environment, "GPURUN_PORT": str(port)}
        log = self._log.with_name("twin.log")
        return BotProcess(environment, log, f"http://127.0.0.1:{port}", nursery=self._nursery)

    @property
    def url(self) -> str:
        """Where it listens."""
        return self._url

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """SIGTERM, and nobody waits."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    async def stop(self) -> int:
        """SIGTERM; the exit code. Silent when it is not running."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self.terminate()
        with anyio.fail_after(STOP_TIMEOUT_S):
            return await anyio.to_thread.run_sync(self._process.wait)

    def high_water_kib(self) -> int:
        """The most memory that this start of it has used."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def output(self) -> str:
        """Everything it ever wrote, over all starts."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""


def halting_at(failpoint: str) -> dict[str, str]:
    """Settings for `start`: it halts there, once."""
    return {"GPURUN_FAILPOINT": f"{failpoint}:stop", "GPURUN_ALLOW_FAILPOINTS": "1"}


def dying_at(*failpoints: str) -> dict[str, str]:
    """Settings for `start`: it kills itself there, or where it comes first."""
    return {"GPURUN_FAILPOINT": ",".join(failpoints), "GPURUN_ALLOW_FAILPOINTS": "1"}
