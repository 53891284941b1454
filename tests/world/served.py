"""The other side of `nursery`: imports gpurun once, and forks a process for each line that it is sent.

A child is `gpurun <words>` but for one thing: with SHIFTED_CLOCK in its environment, its clock is the one of that file.
One word more than gpurun has is understood: `ask`, see `asking`.
"""

from __future__ import annotations

import gc
import json
import os
import ssl
import sys
from functools import cache
from pathlib import Path
from typing import Any

import anyio._backends._asyncio  # noqa: F401
import docker  # noqa: F401
import httpcore  # noqa: F401
import httpx
import uvicorn.lifespan.off
import uvicorn.loops.uvloop
import uvicorn.protocols.http.httptools_impl  # noqa: F401

import gpurun.adapters.github
import gpurun.cli.main
import gpurun.cli.run
import gpurun.cli.serve
import gpurun.http.server
import gpurun.providers.docker.provider
from gpurun import wiring
from gpurun.adapters.github import tokens
from tests.world.shifted import ShiftedClock


def main() -> None:
    """Until stdin ends."""
    # what each start makes anew from files that do not change: 80 ms for each set of root certificates, and the key
    ssl.create_default_context = cache(ssl.create_default_context)
    httpx.create_ssl_context()
    tokens.load_pem_private_key = cache(tokens.load_pem_private_key)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        question = json.loads(line)
        answer = _poll(question["poll"]) if "poll" in question else _fork(question)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _poll(pid: int) -> int | None:
    """Its exit code, negative for a signal; None while it lives. Asked no more after the first code."""
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def _fork(question: dict[str, Any]) -> int:
    sys.stdout.flush()
    if key := question["environment"].get("GPURUN_GITHUB_PRIVATE_KEY"):
        tokens.load_pem_private_key(key.encode(), password=None)
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = _be(question)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return pid


def _be(question: dict[str, Any]) -> int:
    """`gpurun <words>`; its exit code."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(question["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for there, here in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(there, here)
    environment = os.environ  # noqa: TID251  # what exec would do
    environment.clear()
    environment.update(question["environment"])
    os.chdir(question["cwd"])
    clock_file = environment.pop("SHIFTED_CLOCK", "")
    if clock_file:
        wiring.SystemClock = lambda: ShiftedClock(Path(clock_file))
    words = question["words"]
    if words[0] == "ask":
        from tests.world.asking import ask

        return ask(words[1], words[2])
    sys.argv = ["gpurun", *words]
    try:
        gpurun.cli.main.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


if __name__ == "__main__":
    main()
