"""`gpurun run` of `echo hi`, plan to container removed, against `docker run --rm` with the same flags.

Both on the same engine, image and network, with a read-only mount. CLI start-up is apart on our side: the house is open
and the checkout was read, time runs from the request. The anchor's start-up is in its time, as a person meets it.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path

from bench.harness import Figure, compare, seconds
from gpurun.adapters.local import LocalForge
from gpurun.cli.follow import carry_out
from gpurun.cli.logs import log_trouble_only
from gpurun.cli.run import local_request
from gpurun.domain.run import Verdict
from gpurun.flow.request import request_run
from gpurun.settings import Settings
from gpurun.wiring import House, open_local
from ops.local_services import Images, engine, shared_registry

GOAL = 1.3
CONFIG = """\
version: 1
jobs:
  echo:
    image: {image}
    run: echo hi
"""


class Silent:
    """A screen that nobody looks at."""

    broken = False

    def starts(self, *_: object) -> None: ...

    def shows(self, *_: object) -> None: ...

    def notes(self, *_: object) -> None: ...

    def ends(self, *_: object) -> None: ...

    def fails(self, *_: object) -> None: ...


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
                        "gpurun run vs docker run --rm, echo hi",
                        subject=lambda: runner.run(ours(house, forge)),
                        anchor=lambda: seconds(lambda: docker_run(image, Path(folder))),
                        goal=GOAL,
                        rounds=20,
                    )
                ]
            finally:
                runner.run(context.__aexit__(None, None, None))


async def ours(house: House, forge: LocalForge) -> float:
    """Seconds from the request to the container gone."""
    state = await forge.checkout_state()
    request = await local_request(forge, state, state.sha, "echo")
    start = time.perf_counter()
    run_id = await request_run(house.store, house.chance, request)
    facts = await carry_out(house, run_id, Silent())
    took = time.perf_counter() - start
    assert facts.run.verdict is Verdict.PASSED, facts.run
    assert facts.log_tail.endswith(b"hi\n"), facts.log_tail
    return took


def docker_run(image: str, folder: Path) -> None:
    """The same limits, the same network, a folder mounted."""
    argv = ["docker", "run", "--rm", "--network=gpurun-jobs", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    argv += ["--pids-limit=4096", "--memory=8g", "--memory-swap=8g", "--shm-size=4g"]
    argv += [f"--mount=type=bind,src={folder},dst=/gpurun-bench,readonly", "--label=gpurun.bench=1"]
    argv += ["--log-opt=max-size=16m", "--log-opt=max-file=2", "--no-healthcheck", "--entrypoint=/bin/sh"]
    done = subprocess.run([*argv, image, "-c", "echo hi"], check=True, capture_output=True)
    assert done.stdout == b"hi\n"


def make_checkout(folder: Path, image: str) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True)
    (folder / ".gpurun.yml").write_text(CONFIG.format(image=image))
    git = ["git", "-C", str(folder), "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "bench"]):
        subprocess.run([*git, *words], check=True)
    return folder
