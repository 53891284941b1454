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
from tests.fakes.github import CheckRun
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
    # the second act is about code of a fork, which this machine's own engine takes only when it is told to
    async with open_world(folder, image=image, allow_untrusted_local="true") as world:
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
        passed = await _second_act(world, image, steps) and passed
        if os.getenv("KEEP"):
            await _keep(world)
    return passed


async def _second_act(world: World, image: str, steps: Steps) -> bool:
    """A fork that changes the check: it and the gate wait, go on once the commit is approved, and a push ends that."""
    world.repo.grant("dan", "maintain")
    mallory = world.github.user("mallory")
    world.alice.push(world.repo, {".gpurun.yml": _job(image, "echo what main runs")}, branch="main")
    files = {".gpurun.yml": _job(image, "echo what the fork runs; sleep 600")}
    world.pull = pull = mallory.open_pull_request(world.repo, branch="patch-1", files=files, fork=True)
    steps.tell(f"pull request {pull.number} of the fork {pull.head_repo and pull.head_repo.name} at {pull.head_sha}")
    steps.tell(f"check {await _gate(world, 'action_required')}")
    world.comment("/gpurun smoke", by="mallory")
    steps.tell('@mallory, who may not write here, comments "/gpurun smoke"')
    steps.tell(f"answer: {_first_line(await world.expect_comment('is for people with write access'))}")
    world.comment("/gpurun smoke")
    steps.tell('@alice comments "/gpurun smoke"')
    steps.tell(f"check {await _title(world, 'action_required')}")
    _print("the request", await world.expect_comment("waiting for approval"))
    typed = f"/gpurun approve sha={pull.head_sha} max-cost=0.50"
    world.comment(typed, by="alice")
    steps.tell(f'@alice comments "{typed}"')
    refused = await world.expect_comment(f"{typed}` is for people with the role")
    steps.tell(f"answer: {_first_line(refused)}")
    world.comment(typed, by="dan")
    steps.tell(f'@dan, who maintains it, comments "{typed}"')
    await world.expect_container()
    steps.tell(f"the job runs; check {await _gate(world, None)}")
    mallory.push(pull, {"more.txt": "1"})
    steps.tell(f"@mallory pushes {pull.head_sha}")
    steps.tell(f"check {await _title(world, 'cancelled')}")
    await world.expect_comment("Cancelled by a push")
    steps.tell(f"check {await _gate(world, 'action_required')}")
    await world.expect_no_container()
    steps.tell("the container is gone")
    return True


def _job(image: str, run: str) -> str:
    return f'version: 1\njobs:\n  smoke:\n    image: "{image}"\n    run: {run}\n    required: true\n'


async def _gate(world: World, conclusion: str | None) -> str:
    """Of the head."""
    pull = world.pull
    assert pull is not None

    def newest() -> CheckRun | None:
        found = world.github.checks(world.repo, sha=pull.head_sha, name="gpurun/gate")
        return found[-1] if found and found[-1].conclusion == conclusion else None

    check = await world.until(newest, "the gate")
    return f"{check.name}: {check.conclusion or check.status}, {check.title}"


async def _title(world: World, conclusion: str) -> str:
    check = await world.expect_check("gpurun / smoke", conclusion)
    return f"{check.name}: {check.conclusion}, {check.title}"


def _first_line(body: str) -> str:
    return body.partition("\n")[0]


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
    _print("the comment", comment.body)
    console.rule("the check")
    console.print(f"{check.name}: {check.conclusion}, {check.title}", markup=False)
    console.print(f"image    {world.image.split('@')[1]}", markup=False)
    console.print(f"revision {revision}", markup=False)
    console.print(f"verdict  {'passed' if check.conclusion == 'success' else check.conclusion}", markup=False)
    console.rule()


def _print(title: str, body: str) -> None:
    console.rule(title)
    console.print(Markdown(re.sub(r"</?(details|summary)[^>]*>", "\n", re.sub(r"<!--.*?-->", "", body))))
    console.rule()


async def _keep(world: World) -> None:
    assert world.pull is not None
    console.print(f"Look at it: {world.github.git_url}/{world.repo.name}/pull/{world.pull.number}  (Ctrl-C ends)")
    await anyio.sleep_forever()


def _mib(model: DemoModel) -> str:
    return f"{sum(path.stat().st_size for path in model.files.values()) / 2**20:.1f}"


if __name__ == "__main__":
    sys.exit(main())
