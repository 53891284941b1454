"""From the 202 to a command's first step, with ten commands a second: until intake asks about the comment. How long
until the run that it makes takes its own first step is told beside it.

The load is open-loop: a command is sent when its time comes, whatever became of those before. Each is a run of its own
pull request, in an installation of its own (each has a budget of requests to GitHub), that ends at once with reaction,
comment and check; nothing else is asked of GitHub or Docker.
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
import uuid
from pathlib import Path

from bench.accept import cpu_s, wait_for
from bench.deliveries import comment_body, head_of
from bench.harness import Figure
from ops.local_services import free_port

COMMANDS = 200
RATE = 10.0
GOAL_MS = 50.0
END_TIMEOUT_S = 60.0


def main() -> list[Figure]:
    """95 of 100 deliveries have begun in so many milliseconds."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="gpurun-bench-") as name:
        folder = Path(name)
        process = subprocess.Popen([sys.executable, "-m", "bench.first_step_server", str(port), name])
        try:
            wait_for(port, process)
            answered = send_commands(port)
            steps = wait_for_steps(folder / "steps")
            print(f"CPU of the server: {1000 * cpu_s(process.pid) / COMMANDS:.0f} ms a command, its start included")
        finally:
            process.kill()
            process.wait()
    tell("202 to the run's first step", "run", steps, answered)
    p95 = tell("202 to the first step", "inbox", steps, answered)
    return [Figure("202 to the first step, p95", round(p95 / GOAL_MS, 3), 1.0, p95 <= GOAL_MS, os.getloadavg()[0])]


def tell(what: str, kind: str, steps: dict[tuple[str, int], float], answered: dict[int, float]) -> float:
    """Prints it; the p95 in milliseconds."""
    late_ms = [1000 * max(0.0, steps[kind, number] - at) for number, at in answered.items()]
    p50, p95 = statistics.median(late_ms), statistics.quantiles(late_ms, n=20)[-1]
    print(f"{what}: p50 {p50:.1f} ms, p95 {p95:.1f} ms, worst {max(late_ms):.1f} ms")
    return p95


def send_commands(port: int) -> dict[int, float]:
    """Number of each command and when its 202 was there."""
    answered: dict[int, float] = {}
    bodies = [body_of(number) for number in range(1, COMMANDS + 1)]
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    start = time.monotonic()
    sent, waiting, rest = 0, [], b""
    while len(answered) < COMMANDS:
        due_s = start + sent / RATE - time.monotonic()
        if sent < COMMANDS and due_s <= 0:
            connection.sendall(bodies[sent])
            sent += 1
            waiting.append(sent)
            continue
        if select.select([connection], [], [], max(0.0, due_s) if sent < COMMANDS else 10)[0]:
            rest += connection.recv(65536)
            while b"Accepted.\n" in rest:
                _, rest = rest.split(b"Accepted.\n", 1)
                answered[waiting.pop(0)] = time.monotonic()
    connection.close()
    return answered


def body_of(number: int) -> bytes:
    """A whole request."""
    body = comment_body("/gpurun smoke", number=number, repository=f"octo/app-{number}", pad_to=0)
    return head_of(body, str(uuid.uuid4())) + body


def wait_for_steps(file: Path) -> dict[tuple[str, int], float]:
    """The first step of each kind, when all are there."""
    end = time.monotonic() + END_TIMEOUT_S
    while True:
        steps: dict[tuple[str, int], float] = {}
        for line in file.read_text().splitlines():
            kind, number, at = line.split()
            steps.setdefault((kind, int(number)), float(at))
        if len(steps) == 2 * COMMANDS:
            return steps
        assert time.monotonic() < end, f"{len(steps)} of {2 * COMMANDS} steps"
        select.select([], [], [], 0.2)
