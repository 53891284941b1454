"""A thousand live runs in one process, each with a line of log a second: what they cost, and a restart among them.

The agents are one client of this process, over the sockets of the attempts. The anchor of the memory is the same house
without runs. "An asyncio task" (4 KiB of buffer, one event a second) is measured beside it, as the floor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from bench.harness import Figure, bound
from gpurun.adapters.clock import SystemChance, SystemClock
from gpurun.adapters.store import SqliteStore
from gpurun.domain.offer import InstanceState
from gpurun.domain.run import Attempt, AttemptState, Phase, Run, RunState
from gpurun.domain.stream import StreamName
from gpurun.ports.store import Tx
from gpurun.run.timers import WATCH, WATCH_RUN
from gpurun.run.tokens import run_token, token_sha256
from tests.fakes.rows import OFFER, PLAN, a_run, an_attempt

RUNS = 1000
SECONDS = 20.0
LINE = b"2026-01-01T00:00:00Z step %8d loss 0.1234 lr 1.0e-04 tokens/s 12345 gpu 97%%\n"
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
MEMORY_GOAL_KIB = 128
CPU_GOAL = 0.30
RESTART_GOAL_S = 10.0


def main() -> list[Figure]:
    """CPU of one core, KiB a run, seconds of a restart."""
    more_files()
    with tempfile.TemporaryDirectory(prefix="gpurun-bench-") as folder:
        empty, full = Path(folder) / "empty", Path(folder) / "full"
        with asyncio.Runner() as runner:
            runner.run(seed(empty, 0))
            with house(empty) as process:
                runner.run(asyncio.sleep(3))
                base_kib = rss_kib(process.pid)
            agents = runner.run(seed(full, RUNS))
            return runner.run(measure(full, agents, base_kib))


async def measure(state: Path, agents: list[Agent], base_kib: int) -> list[Figure]:
    """In one story: live, die, live again."""
    with house(state) as process:
        talking = asyncio.ensure_future(talk(agents))
        await asyncio.sleep(5)
        cpu_s, sent, start = cpu_seconds(process.pid), lines(agents), time.perf_counter()
        await asyncio.sleep(SECONDS)
        share = (cpu_seconds(process.pid) - cpu_s) / (time.perf_counter() - start)
        rate = (lines(agents) - sent) / (time.perf_counter() - start)
        each_kib = (rss_kib(process.pid) - base_kib) / len(agents)
        process.send_signal(signal.SIGKILL)
        process.wait()
    print(f"{len(agents)} live runs: {rate:.0f} lines/s, {share * 100:.1f} % of a core, {each_kib:.1f} KiB each")
    assert rate > 0.95 * len(agents), "the lines came too late"
    took_s = await restart(state, agents)
    talking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await talking
    await verify(state, agents)
    return [
        bound("1,000 live runs, share of a core", share, CPU_GOAL),
        bound("1,000 live runs, KiB each", each_kib, MEMORY_GOAL_KIB),
        bound("restart with 1,000 live runs, seconds until each has delivered", took_s, RESTART_GOAL_S),
    ]


async def restart(state: Path, agents: list[Agent]) -> float:
    """Seconds from the start of the process until each agent has been answered anew."""
    before = [agent.answered for agent in agents]
    start = time.perf_counter()
    with house(state):
        while any(agent.answered <= old for agent, old in zip(agents, before, strict=True)):
            assert time.perf_counter() < start + 60, "the restart takes too long"
            await asyncio.sleep(0.05)
        took_s = time.perf_counter() - start
        await asyncio.sleep(20)  # the observer and every row have had a turn
    return took_s


async def verify(state: Path, agents: list[Agent]) -> None:
    """Nothing was made, ended, lost or doubled."""
    assert not (state / "orders").exists(), (state / "orders").read_text()
    store = SqliteStore(state / "gpurun.db", clock=SystemClock(), chance=SystemChance())
    async with store:

        def look(tx: Tx) -> tuple[list[Attempt], list[bytes]]:
            live = list(tx.live_attempts())
            logs = [tx.read_stream(one.id, StreamName.LOG, offset=0, max_bytes=1 << 24) for one in agents]
            return live, logs

        live, logs = await store.read(look)
    assert len(live) == len(agents)
    assert all(one.state is AttemptState.LIVE for one in live)
    for agent, log in zip(agents, logs, strict=True):
        whole = b"".join(LINE % number for number in range(agent.answered + 2))
        assert len(log) >= agent.answered * len(LINE % 0), "a line is lost"
        assert whole.startswith(log), "the log is not what was sent"


@dataclass
class Agent:
    """One attempt's agent: a line a second, exactly once."""

    id: str
    token: str
    path: Path
    answered: int = 0
    """Lines that the bot has."""
    writer: asyncio.StreamWriter | None = field(default=None, repr=False)
    reader: asyncio.StreamReader | None = field(default=None, repr=False)

    async def send(self) -> None:
        """The next line, and the answer. Raises OSError, EOFError when there is nobody."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_unix_connection(str(self.path))
        assert self.reader is not None
        line = LINE % self.answered
        head = (
            f"PUT /agent/v1/streams/log?offset={self.answered * len(line)} HTTP/1.1\r\nhost: bot\r\n"
            f"authorization: Bearer {self.token}\r\ncontent-length: {len(line)}\r\n\r\n"
        )
        self.writer.write(head.encode() + line)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await self.reader.readexactly(length)
        status = int(answer.split(b" ", 2)[1])
        if status == 409:  # it had it: the answer was lost
            self.answered += 1
        assert status in {200, 409, 503}, answer
        self.answered += status == 200

    def drop(self) -> None:
        """The connection is no good."""
        if self.writer is not None:
            self.writer.transport.abort()
        self.writer = self.reader = None


async def talk(agents: list[Agent]) -> None:
    """All of them, spread over the second, until it is cancelled."""
    async with asyncio.TaskGroup() as tasks:
        for number, agent in enumerate(agents):
            tasks.create_task(one_talks(agent, number / len(agents)))


async def one_talks(agent: Agent, after_s: float) -> None:
    """A line a second; when nobody answers it tries again, as agents do."""
    await asyncio.sleep(after_s)
    due = time.perf_counter()
    while True:
        try:
            await agent.send()
            due += 1.0
        except (OSError, EOFError, asyncio.IncompleteReadError):
            agent.drop()
            due = time.perf_counter() + 0.5
        await asyncio.sleep(max(0.0, due - time.perf_counter()))


def lines(agents: list[Agent]) -> int:
    """All that were answered."""
    return sum(agent.answered for agent in agents)


async def seed(state: Path, count: int) -> list[Agent]:
    """A database with so many live attempts, and a folder for the socket of each."""
    (state / "up").mkdir(parents=True)
    chance, clock = SystemChance(), SystemClock()
    store = SqliteStore(state / "gpurun.db", clock=clock, chance=chance)
    agents, instances = [], []
    async with store:
        now = datetime.now(UTC)
        for number in range(count):
            part = number / count  # as rows are that came one by one
            run_id, attempt_id, boot_id = chance.ulid(), chance.ulid(), f"boot-{number}"
            token = run_token(store.install_secret, attempt_id, boot_id)
            name = f"gpurun-{store.install_id}-{attempt_id}-abc"
            run = a_run(
                id=run_id, pr=number, created_at=now, state=RunState.ACTIVE, state_since=now,
                due_at=now + part * WATCH_RUN,
                plan=PLAN, plan_digest="d" * 64, attempts=1,
            )  # fmt: skip
            attempt = an_attempt(
                id=attempt_id, run_id=run_id, offer=OFFER, name=name, created_at=now,
                hard_deadline=now + timedelta(hours=2), state=AttemptState.LIVE, state_since=now,
                due_at=now + part * WATCH,
                create_sent_at=now, instance_ref=f"i-{number}", claimed_at=now, boot_id=boot_id,
                token_sha256=token_sha256(token), last_seen_at=now, observed=InstanceState.RUNNING, observed_at=now,
                phase_times={Phase.CLAIMED: now, Phase.RUNNING: now},
            )  # fmt: skip
            await store.write(partial(add, run, attempt))
            (state / "up" / attempt_id).mkdir()
            agents.append(Agent(attempt_id, token, state / "up" / attempt_id / "s" / "bot.sock"))
            instances.append(f"i-{number} {name}\n")
    (state / "instances").write_text("".join(instances))
    return agents


def add(run: Run, attempt: Attempt, tx: Tx) -> None:
    """Both rows."""
    tx.add_run(run)
    tx.add_attempt(attempt)


@contextmanager
def house(state: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of `bench.live_house`, ready."""
    argv = [sys.executable, "-m", "bench.live_house", str(state), str(state / "instances")]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """User and system time of all its threads."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / TICKS


def rss_kib(pid: int) -> int:
    """Resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_KIB


def more_files() -> None:
    """A socket each, here and there."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    assert socket.AF_UNIX


if __name__ == "__main__":
    main()
