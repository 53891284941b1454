"""`gpurun run` of `echo hi` against `docker run --rm` with the same flags: result known, and container removed.

Both on the same engine, image and network, with a read-only mount. CLI start-up is apart on our side: the house is open
and the checkout was read, time runs from the request. The anchor's start-up is in its time, as a person meets it. The
result is known when log and result are durable in the bot.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import Figure, seconds
from gpurun.adapters.local import LocalForge
from gpurun.cli.follow import carry_out
from gpurun.cli.logs import log_trouble_only
from gpurun.cli.run import Wish, local_request
from gpurun.domain.run import Verdict
from gpurun.flow.request import request_run
from gpurun.settings import Settings
from gpurun.wiring import House, open_local
from ops.local_services import Images, engine, shared_registry

RESULT_GOAL = 1.0
REMOVED_GOAL = 1.15
ROUNDS = 20
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

    def hides(self, *_: object) -> None: ...

    def starts(self, *_: object) -> None: ...

    def shows(self, *_: object) -> None: ...

    def notes(self, *_: object) -> None: ...

    def ends(self, *_: object) -> None: ...

    def fails(self, *_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds from the request."""

    result: float
    removed: float
    cpu: float
    """Of this process, all threads."""


def main() -> list[Figure]:
    """Two figures."""
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
                return figures(
                    lambda: runner.run(ours(house, forge)), lambda: seconds(lambda: docker_run(image, Path(folder)))
                )
            finally:
                runner.run(context.__aexit__(None, None, None))


def figures(ours: Callable[[], Times], theirs: Callable[[], float]) -> list[Figure]:
    """Both in turn; the first of each is thrown away."""
    ours(), theirs()
    pairs = []
    for number in range(ROUNDS):
        if number % 2:
            their_s = theirs()
            pairs.append((ours(), their_s))
        else:
            pairs.append((ours(), theirs()))
    results = [mine.result / theirs_s for mine, theirs_s in pairs]
    removals = [mine.removed / theirs_s for mine, theirs_s in pairs]
    ms = {name: 1000 * statistics.median(getattr(mine, name) for mine, _ in pairs) for name in Times.__slots__}
    print(
        f"gpurun run, echo hi: result {ms['result']:.0f} ms, removed {ms['removed']:.0f} ms, CPU {ms['cpu']:.0f} ms; "
        f"docker run --rm {1000 * statistics.median(theirs_s for _, theirs_s in pairs):.0f} ms"
    )
    return [
        _figure("gpurun run vs docker run --rm, result known", results, RESULT_GOAL),
        _figure("gpurun run vs docker run --rm, container removed", removals, REMOVED_GOAL),
    ]


def _figure(name: str, ratios: list[float], goal: float) -> Figure:
    ratio = statistics.median(ratios)
    print(f"{name}: {ratio:.2f}x (goal <= {goal:g}x), {min(ratios):.2f}..{max(ratios):.2f} over {len(ratios)} rounds")
    return Figure(name, round(ratio, 3), goal, ratio <= goal, os.getloadavg()[0])


async def ours(house: House, forge: LocalForge) -> Times:
    """One run, whose log and verdict are checked."""
    state = await forge.checkout_state()
    request = await local_request(forge, state, state.sha, Wish(job="echo", checkout=state.top))
    cpu, start = time.process_time(), time.perf_counter()
    with _result_times(house.store) as known_at:
        run_id = await request_run(house.store, house.chance, request)
        facts = await carry_out(house, run_id, Silent())
    removed = time.perf_counter() - start
    cpu = time.process_time() - cpu
    assert facts.run.verdict is Verdict.PASSED, facts.run
    assert facts.log_tail.endswith(b"hi\n"), facts.log_tail
    return Times(known_at[0] - start, removed, cpu)


@contextmanager
def _result_times(store: Any) -> Iterator[list[float]]:
    """When a write of the agent's `finish` became durable."""
    write, times = store.write, []

    async def timed(fn: Any, **how: Any) -> Any:
        answer = await write(fn, **how)
        if fn.__qualname__.startswith("finish."):
            times.append(time.perf_counter())
        return answer

    store.write = timed
    try:
        yield times
    finally:
        del store.write


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
