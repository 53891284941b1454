"""`make demo`: the main job on one machine, acted by a person, with a stand-in for GitHub and for the model hub.

Everything else is the product itself: `gpurun serve`, a Docker Engine, a registry, git, a real small model.
`KEEP=1 make demo` leaves everything up until Ctrl-C, to look at the pull request in a browser.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

import anyio
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from ops.demo_model import DemoModel, demo_model, smoke_repository
from ops.local_services import CACHE, Images, Missing, engine, shared_registry
from tests.world import World, open_world

console = Console(highlight=False, soft_wrap=True)


class Steps:
    """One line for each thing that is done, with the time since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def tell(self, text: str) -> None:
        """Now."""
        console.print(Text(f"{self.seconds:6.1f} s  ", style="dim"), Text(text), sep="")

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began


def main() -> int:
    """0 when the job passed."""
    steps = Steps()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does, and takes everything down
    try:
        with shared_registry() as registry, tempfile.TemporaryDirectory(prefix="gpurun-demo-") as folder:
            image = Images(engine(), registry).python()
            steps.tell(f"image {image}")
            model = demo_model(CACHE / "demo")
            try:
                passed = anyio.run(_act, Path(folder), image, model, steps)
            except KeyboardInterrupt:  # how KEEP=1 ends; everything was taken down on the way here
                passed = True
            steps.tell("cleaned up")
    except Missing as missing:
        console.print(Text(f"demo: {missing}", style="red"))
        return 1
    return 0 if passed else 1


async def _act(folder: Path, image: str, model: DemoModel, steps: Steps) -> bool:
    async with open_world(folder, image=image) as world:
        revision = world.hub.add_model(model.id, model.files)
        steps.tell(f"model {model.id} at revision {revision}, {_mib(model)} MiB, served by a local hub")
        world.files(smoke_repository(image=image, revision=revision, checksum=model.expected_checksum))
        assert world.pull is not None
        steps.tell(f"pull request 1 of {world.repo.name} at {world.pull.head_sha}")
        asked = steps.seconds
        world.comment("/gpurun smoke")
        steps.tell('@alice comments "/gpurun smoke"')
        passed = await _watch(world, steps)
        await world.expect_no_container()
        steps.tell(f"verdict {steps.seconds - asked:.1f} s after the comment; the container is gone")
        _show(world, revision)
        if os.getenv("KEEP"):
            await _keep(world)
    return passed


async def _watch(world: World, steps: Steps) -> bool:
    """Tells each new title of the check, until it has a conclusion."""
    told = ""
    check = None
    while check is None or check.conclusion is None:
        check = await world.until(
            lambda seen=told: next(  # type: ignore[misc]
                (c for c in world.github.checks(world.repo) if c.title != seen or c.conclusion), None
            ),
            "the check",
        )
        if check.title != told:
            steps.tell(f"check {check.name}: {check.title}")
            told = check.title
    await world.expect_comment(f"gpurun {check.name.rpartition(' ')[2]}: ")
    await world.until(lambda: _final(world), "the final comment")
    return check.conclusion == "success"


def _final(world: World) -> bool | None:
    return True if "Log" in world.bot_comments()[-1].body else None


def _show(world: World, revision: str) -> None:
    comment, check = world.bot_comments()[-1], world.github.checks(world.repo)[-1]
    body = re.sub(r"<!--.*?-->", "", comment.body)
    console.rule("the comment")
    console.print(Markdown(re.sub(r"</?(details|summary)[^>]*>", "\n", body)))
    console.rule("the check")
    console.print(f"{check.name}: {check.conclusion}, {check.title}", markup=False)
    console.print(f"image    {world.image.split('@')[1]}", markup=False)
    console.print(f"revision {revision}", markup=False)
    console.print(f"verdict  {'passed' if check.conclusion == 'success' else check.conclusion}", markup=False)
    console.rule()


async def _keep(world: World) -> None:
    assert world.pull is not None
    console.print(f"Look at it: {world.github.git_url}/{world.repo.name}/pull/{world.pull.number}  (Ctrl-C ends)")
    await anyio.sleep_forever()


def _mib(model: DemoModel) -> str:
    return f"{sum(path.stat().st_size for path in model.files.values()) / 2**20:.1f}"


if __name__ == "__main__":
    sys.exit(main())
