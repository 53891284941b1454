"""Durable accept of a signed 14 KB delivery against a bare ASGI app that only checks the signature.

Both on uvicorn with the settings of `gpurun serve`, on one core; the client has the other one. Requests a second are
disturbed by neighbours; CPU time per request, which covers every thread of the server, much less.
"""

from __future__ import annotations

import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.deliveries import LoadClient
from bench.harness import Figure
from ops.local_services import free_port

RATE_GOAL = 0.20
CPU_GOAL = 5.0
ROUNDS = 9
ROUND_S = 1.5
START_TIMEOUT_S = 60.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Measured:
    """One server in one round."""

    rate: float
    """Answers a second."""
    cpu_us: float
    """Of the server, for one answer."""


def main() -> list[Figure]:
    """Requests a second, and CPU time a request."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    try:
        with tempfile.TemporaryDirectory(prefix="gpurun-bench-") as folder:
            return compare(Path(folder), core=cores[0])
    finally:
        os.sched_setaffinity(0, cores)


def compare(folder: Path, *, core: int) -> list[Figure]:
    """Rounds of both in turn; the first of each is thrown away."""
    with server("bare", folder, core=core) as bare, server("gpurun", folder, core=core) as gpurun:
        rounds = [(bare.round(), gpurun.round()) for _ in range(ROUNDS + 1)][1:]
    rates = [ours.rate / theirs.rate for theirs, ours in rounds]
    cpus = [ours.cpu_us / theirs.cpu_us for theirs, ours in rounds]
    for name, each in (("bare ASGI", 0), ("gpurun", 1)):
        rate = statistics.median(one[each].rate for one in rounds)
        cpu_us = statistics.median(one[each].cpu_us for one in rounds)
        print(f"{name}: {rate:.0f} requests/s, {cpu_us:.0f} us CPU each")
    load = os.getloadavg()[0]
    rate, cpu = statistics.median(rates), statistics.median(cpus)
    print(f"durable accept: {rate:.3f}x requests/s (goal >= {RATE_GOAL:g}x), {cpu:.2f}x CPU (goal <= {CPU_GOAL:g}x)")
    print(f"  ratios {min(rates):.3f}..{max(rates):.3f} and {min(cpus):.2f}..{max(cpus):.2f} over {ROUNDS} rounds")
    return [
        Figure("durable accept, requests/s vs bare ASGI + HMAC", round(rate, 3), RATE_GOAL, rate >= RATE_GOAL, load),
        Figure("durable accept, CPU per request vs bare ASGI + HMAC", round(cpu, 3), CPU_GOAL, cpu <= CPU_GOAL, load),
    ]


@dataclass(slots=True)
class Server:
    """A server process and its client."""

    process: subprocess.Popen[bytes]
    client: LoadClient

    def round(self) -> Measured:
        """Some seconds of load."""
        before = cpu_s(self.process.pid)
        load = self.client.run(ROUND_S)
        return Measured(load.answers / load.took_s, (cpu_s(self.process.pid) - before) / load.answers * 1e6)


def cpu_s(pid: int) -> float:
    """Of all threads of a process, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


@contextmanager
def server(which: str, folder: Path, *, core: int) -> Iterator[Server]:
    """Running on `core`."""
    port = free_port()
    argv = ["taskset", "-c", str(core), sys.executable, "-m", "bench.accept_server", which, str(port)]
    process = subprocess.Popen([*argv, str(folder / which)])
    try:
        wait_for(port, process)
        yield Server(process, LoadClient(port))
    finally:
        process.kill()
        process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until it listens."""
    end = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < end, "the server did not start"
            select.select([], [], [], 0.05)
