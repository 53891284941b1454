"""A live log of 300,000 lines: agent, its mask, socket, the bot's mask and a durable store, against `docker logs -f`.

The same command on the same engine and image, in turn. Time runs from the moment the output begins until its last byte
is durable, or read from `docker logs -f`. Every byte is compared; 50 secrets are known, one of them is printed.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO

import anyio
from pydantic import SecretStr

from bench.harness import Figure, compare
from bench.local_run import Silent
from bench.mask import secrets
from gpurun.adapters.local import LocalForge
from gpurun.cli.follow import carry_out
from gpurun.cli.logs import log_trouble_only
from gpurun.cli.run import Wish, local_request
from gpurun.domain.run import Attempt, Verdict
from gpurun.domain.stream import StreamName
from gpurun.flow.request import request_run
from gpurun.ports.store import Tx
from gpurun.settings import Settings
from gpurun.wiring import House, open_local
from ops.local_services import Images, engine, shared_registry

GOAL = 0.25
N_LINES = 300_000
N_SECRETS = 50
EACH = 10_000
"""So often a line holds a secret."""
PAUSE_S = 0.3
"""Between the first line, which starts the clock, and the output."""

TOKEN = secrets(N_SECRETS)[0]
LINE = "step %06d loss 0.693147 lr 3.000e-04 tokens/s 48211.7 grad_norm 0.8412 mem 70211 MiB " + "." * 18
AWK = f'for (i = 0; i < {N_LINES}; i++) {{ printf "{LINE}\\n", i; if (i % {EACH} == 0) print ENVIRON["TOKEN"] }}'
COMMAND = f"""\
awk 'BEGIN {{ {AWK} }}' > /dev/shm/log && echo begins && sleep {PAUSE_S} && cat /dev/shm/log"""
CONFIG = """\
version: 1
jobs:
  log:
    image: {image}
    env: {{TOKEN: "{token}"}}
    run: |
      {command}
"""


def main() -> list[Figure]:
    """One figure."""
    log_trouble_only()
    with shared_registry() as registry, tempfile.TemporaryDirectory(prefix="gpurun-bench-") as folder:
        image = Images(engine(), registry).python()
        checkout = make_checkout(Path(folder) / "checkout", image)
        with asyncio.Runner() as runner:
            settings = Settings(state_dir=Path(folder) / "state")
            forge = LocalForge(checkout)
            context = open_local(settings, forge)
            house = runner.run(context.__aenter__())
            try:
                return [
                    compare(
                        "live log, both masks, 50 secrets, stored vs docker logs -f",
                        subject=lambda: runner.run(ours(house, forge)),
                        anchor=lambda: docker_logs(image),
                        goal=GOAL,
                        rounds=5,
                    )
                ]
            finally:
                runner.run(context.__aexit__(None, None, None))


async def ours(house: House, forge: LocalForge) -> float:
    """Seconds from the beginning of the output to its last byte durable."""
    state = await forge.checkout_state()
    request = await local_request(forge, state, state.sha, Wish(job="log", checkout=state.top))
    run_id = await request_run(house.store, house.chance, request)
    took_s = 0.0

    async def watch() -> None:
        nonlocal took_s
        attempt = await first_attempt(house, run_id)
        for value in secrets(N_SECRETS):
            house.secrets.register(SecretStr(value), attempt_id=attempt.id)
        lead = b"::gpurun:: run\nbegins\n"
        began = await reaches(house, attempt.id, len(lead)) + PAUSE_S
        took_s = await reaches(house, attempt.id, len(lead) + len(expected(masked=True))) - began

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        facts = await carry_out(house, run_id, Silent())
    assert facts.run.verdict is Verdict.PASSED, facts.run
    attempt_id = facts.attempts[-1].id
    log = await house.store.read(
        lambda tx: tx.read_stream(attempt_id, StreamName.LOG, offset=0, max_bytes=1 << 30),
    )
    assert log == b"::gpurun:: run\nbegins\n" + expected(masked=True), difference(log)
    return took_s


async def first_attempt(house: House, run_id: str) -> Attempt:
    """As soon as there is one, which is before its container is made."""

    def read(tx: Tx) -> tuple[Attempt, ...]:
        return tx.attempts(run_id)

    while True:
        for attempt in await house.store.read(read):
            return attempt
        await asyncio.sleep(0.005)


async def reaches(house: House, attempt_id: str, offset: int) -> float:
    """When so many bytes of the log are durable."""
    while True:
        end = await house.store.read(lambda tx: tx.stream_end(attempt_id, StreamName.LOG))
        if end.durable >= offset:
            return time.perf_counter()
        await asyncio.sleep(0.005)


def docker_logs(image: str) -> float:
    """Seconds from the beginning of the output to its last byte read."""
    argv = ["docker", "run", "--detach", "--network=none", "--shm-size=4g", "--label=gpurun.bench=1"]
    argv += ["--log-driver=json-file", "--no-healthcheck", f"--env=TOKEN={TOKEN}", "--entrypoint=/bin/sh"]
    made = subprocess.run([*argv, image, "-c", COMMAND], check=True, capture_output=True, text=True).stdout.strip()
    try:
        with subprocess.Popen(["docker", "logs", "--follow", made], stdout=subprocess.PIPE) as follow:
            assert follow.stdout is not None
            assert follow.stdout.read(len(b"begins\n")) == b"begins\n"
            began = time.perf_counter() + PAUSE_S
            log = read_all(follow.stdout, len(expected(masked=False)))
            took_s = time.perf_counter() - began
        assert log == expected(masked=False), difference(log)
        return took_s
    finally:
        subprocess.run(["docker", "rm", "--force", made], check=True, stdout=subprocess.DEVNULL)


def read_all(pipe: IO[bytes], n_bytes: int) -> bytes:
    """So many bytes, or fewer at the end."""
    pieces, left = [], n_bytes
    while left and (piece := pipe.read(min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def expected(*, masked: bool) -> bytes:
    """What the command prints after its first line."""
    token = "*" * len(TOKEN) if masked else TOKEN
    if masked not in _EXPECTED:
        lines = ((LINE % at) + (f"\n{token}" if at % EACH == 0 else "") for at in range(N_LINES))
        _EXPECTED[masked] = "".join(f"{line}\n" for line in lines).encode()
    return _EXPECTED[masked]


_EXPECTED: dict[bool, bytes] = {}


def difference(log: bytes) -> str:
    """For a message."""
    return f"{len(log)} bytes, the last of them {log[-200:]!r}"


def make_checkout(folder: Path, image: str) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True)
    (folder / ".gpurun.yml").write_text(CONFIG.format(image=image, token=TOKEN, command=COMMAND))
    git = ["git", "-C", str(folder), "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "bench"]):
        subprocess.run([*git, *words], check=True)
    return folder
