"""`python -m tests.docker.bot_to_kill`: creates the pickled launch with a watchdog, says so, and waits to be killed."""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpurun.providers.docker import DockerConfig, DockerProvider
from gpurun.providers.docker.watchdog import Pace


async def main() -> None:
    given = pickle.load(sys.stdin.buffer)
    config = DockerConfig(network=given["network"], watchdog_folder=Path(given["folder"]))
    provider = DockerProvider(config, pace=Pace(grace_s=1, idle_s=2))
    for launch, seconds in given["launches"]:
        deadline = datetime.now(UTC) + timedelta(seconds=seconds)
        ref = await provider.create(replace(launch, hard_deadline=deadline))
        sys.stdout.write(f"{ref}\n")
        sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    asyncio.run(main())
