"""The world and what can be said in it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx

from gpurun.ports.clock import Clock
from ops.local_services import engine, free_port
from tests.docker.watchdogs import end_watchdogs
from tests.fakes.github import CheckRun, Comment, FakeGitHub, Pull, serving
from tests.fakes.github.gitrepo import Files
from tests.fakes.hub import FakeHub
from tests.world.bot import BotProcess
from tests.world.engine_log import EngineLog
from tests.world.nursery import Nursery
from tests.world.rows import select, undone

WITHIN_S = 45.0
"""How long an answer may take on a busy machine."""
T = TypeVar("T")

CANARY = "canary-5f0e9b1c77d24a"
"""A secret of the bot that must not show up anywhere."""


class World:
    """One repository, one pull request by alice, and the bot."""

    def __init__(
        self, github: FakeGitHub, hub: FakeHub, bot: BotProcess, *, image: str, url: str, database: str
    ) -> None:
        self.github = github
        self.hub = hub
        self.bot = bot
        self.url = url
        self.image = image
        self.database = database
        self.repo = github.create_repo("acme/train", files={"README.md": "# train\n"}, private=True)
        for login, right in {"alice": "write", "bob": "read", "carol": "admin", "erin": "write"}.items():
            self.repo.grant(login, right)
        self.alice = github.user("alice")
        self.pull: Pull | None = None
        self._read: set[int] = set()
        self._engine = engine()
        self.engine_log = EngineLog()

    # acting

    def jobs(self, files: Files | None = None, **jobs: Mapping[str, Any]) -> None:
        """Opens the pull request, or pushes to it, with these jobs. `image` is the Python one unless a job says so."""
        config = {"version": 1, "jobs": {name: {"image": self.image, **job} for name, job in jobs.items()}}
        # JSON is YAML
        self.files({".gpurun.yml": json.dumps(config, indent=2), **(files or {})})

    def files(self, files: Files) -> None:
        """Opens the pull request, or pushes to it."""
        if self.pull is None:
            self.pull = self.alice.open_pull_request(self.repo, branch="smoke", files=files, title="Try the model")
        else:
            self.alice.push(self.pull, files)

    def comment(self, body: str, *, by: str = "alice", on: Pull | None = None) -> Comment:
        """A person writes; the delivery goes out by itself."""
        pull = on or self.pull
        assert pull is not None, "say world.jobs(...) first"
        return self.github.user(by).comment(pull, body)

    # looking

    def bot_comments(self, on: Pull | None = None) -> list[Comment]:
        """Oldest first."""
        pull = on or self.pull
        assert pull is not None
        return [comment for comment in self.github.comments(pull) if comment.author is self.github.bot]

    async def expect_check(self, name: str, conclusion: str | None, *, within_s: float = WITHIN_S) -> CheckRun:
        """The newest check of that name has that conclusion; None: it is in progress."""
        assert self.pull is not None

        def newest() -> CheckRun | None:
            found = self.github.checks(self.repo, name=name)
            return found[-1] if found and found[-1].conclusion == conclusion else None

        return await self.until(newest, f"check {name!r} with {conclusion}", within_s=within_s)

    async def expect_comment(self, text: str, *, on: Pull | None = None, within_s: float = WITHIN_S) -> str:
        """The body of a comment of the bot that holds `text` now; it counts as read."""

        def found() -> Comment | None:
            return next((one for one in reversed(self.bot_comments(on)) if text in one.body), None)

        comment = await self.until(found, f"a comment with {text!r}", within_s=within_s)
        self._read.add(comment.id)
        return comment.body

    async def expect_reaction(self, comment: Comment, content: str = "eyes") -> None:
        """The bot reacted to it."""
        await self.until(lambda: [r for r in comment.reactions if content in str(r)] or None, f"the reaction {content}")

    async def until(self, look: Callable[[], T | None], what: str, *, within_s: float = WITHIN_S) -> T:
        """Looks again whenever something changed at GitHub, and now and then."""
        with anyio.move_on_after(within_s):
            while True:
                found = look()
                if found is not None:
                    return found
                await self.github.changed(timeout_s=0.2)
        raise AssertionError(f"waited {within_s:g} s for {what}\n{self.story()}")

    def story(self) -> str:
        """What is there, for a message."""
        comments = [f"--- comment {one.id}\n{one.body}" for one in self.bot_comments()] if self.pull else []
        checks = [f"--- check {c.name}: {c.status} {c.conclusion} {c.title}" for c in self.github.checks(self.repo)]
        return "\n".join([*comments, *checks, "--- bot's log", self.bot.output()[-4000:]])

    # containers

    def containers(self) -> list[dict[str, Any]]:
        """Of this bot, whatever their state."""
        return [
            one
            for one in self._engine.containers(all=True, filters={"label": "gpurun.attempt"})
            if one["Labels"].get("gpurun.install") == self.install
        ]

    @property
    def install(self) -> str:
        """From the bot's first log line."""
        for line in self.bot.output().splitlines():
            if line.startswith("{") and '"serving"' in line:
                return str(json.loads(line)["install"])
        return ""

    async def expect_container(self) -> str:
        """The id of the one container that runs the job, with no other beside it, not even one that was only made."""

        def look() -> tuple[list[dict[str, Any]], list[dict[str, Any]]] | None:
            there = self.containers()
            begun = [one for one in there if one["State"] != "created"]
            return (begun, there) if begun else None

        begun, there = await self.until(look, "a container")
        assert len(there) == 1, there
        return str(begun[0]["Id"])

    async def expect_running(self) -> None:
        """The command of a job runs. The comment may say so minutes later."""
        running = "SELECT 1 FROM attempt WHERE phase = 'running' AND state = 'live'"
        await self.until(lambda: select(self.database, running) or None, "a job that runs")

    def made_containers(self) -> list[str]:
        """Names of all that were ever made for this bot, oldest first, as the engine told of it."""
        return self.engine_log.made(self.install)

    def make_stray(self) -> str:
        """The id of a container that carries the bot's name and that nobody ordered."""
        attempt = "0" * 26
        labels = {"gpurun.attempt": attempt, "gpurun.install": self.install}
        name = f"gpurun-{self.install}-{attempt}-zzzzzz"
        made = self._engine.create_container(self.image, ["sleep", "600"], name=name, labels=labels)
        return str(made["Id"])

    def in_container(self, container: str, *argv: str) -> str:
        """What a command in it prints."""
        made = self._engine.exec_create(container, list(argv))
        output: bytes = self._engine.exec_start(made["Id"])
        return output.decode()

    async def expect_no_container(self, *, within_s: float = 20.0) -> None:
        """The last one is gone."""
        await self.until(lambda: True if not self.containers() else None, "no container", within_s=within_s)

    # pages

    def page_in(self, body: str) -> str:
        """The run page's path and query: the one link that leads to no file of the run."""
        found: list[str] = re.findall(re.escape("](" + self.url) + r"([^)\s]+)\)", body)
        return next((one for one in found if "/artifacts/" not in one), found[0])

    async def page(self, body: str, suffix: str = "") -> httpx.Response:
        """The run page that a comment links to. `suffix`: `log` for the log."""
        path, _, query = self.page_in(body).partition("?")
        async with httpx.AsyncClient(timeout=10) as client:
            return await client.get(f"{self.url}{path}{'/' + suffix if suffix else ''}?{query}")

    # the end

    async def finish(self) -> None:
        """Everything that must hold when a story is over."""
        await self.expect_no_container()
        await self.until(lambda: None if undone(self.database) else True, f"nothing undone: {undone(self.database)}")
        unread = [one.body for one in self.bot_comments() if one.id not in self._read] if self.pull else []
        assert not unread, "comments that nobody read:\n" + "\n---\n".join(unread)
        self.assert_no_secret()

    def secrets(self) -> set[str]:
        """The bot's own, and what it got for them."""
        return {
            CANARY,
            self.github.app.webhook_secret.get_secret_value(),
            *self.github.tokens,
            *(line for line in self.github.app.private_key.get_secret_value().splitlines() if len(line) > 40),
        }

    def assert_no_secret(self) -> None:
        """In comments, checks and the bot's own log."""
        shown = {
            "log": self.bot.output(),
            **{f"comment {one.id}": one.body + "".join(one.history) for one in self.bot_comments()},
            **{f"check {one.id}": f"{one.title} {one.summary} {one.text}" for one in self.github.checks(self.repo)},
        }
        for secret in self.secrets():
            for where, text in shown.items():
                assert secret not in text, f"a secret is in the {where}"


@asynccontextmanager
async def open_world(
    folder: Path,
    *,
    image: str,
    database_url: str = "",
    clock: Clock | None = None,
    nursery: Nursery | None = None,
    environment: Mapping[str, str] | None = None,
    **settings: str,
) -> AsyncIterator[World]:
    """The bot is running, with `settings` (`public_url` as `GPURUN_PUBLIC_URL`) on top of its own.

    `clock` is GitHub's; `nursery` makes starts of the bot cheap; `environment` is for what is no setting.
    """
    github = FakeGitHub(folder / "github", clock=clock)
    hub = FakeHub()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with serving(github) as github_url:
        with hub.serving() as hub_url:
            environment = {
                **(environment or {}),
                "GPURUN_STATE_DIR": str(folder / "state"),
                "GPURUN_DATABASE_URL": database_url,
                "GPURUN_PORT": str(port),
                "GPURUN_PUBLIC_URL": url,
                "HOME": str(folder),
                "GPURUN_GITHUB_API_URL": github.api_url,
                "GPURUN_GITHUB_URL": github_url,
                "GPURUN_GITHUB_APP_ID": str(github.app.id),
                "GPURUN_GITHUB_PRIVATE_KEY": github.app.private_key.get_secret_value(),
                "GPURUN_WEBHOOK_SECRET": github.app.webhook_secret.get_secret_value(),
                # a story of seconds holds more than an hour of a person
                "GPURUN_GITHUB_WRITES_PER_HOUR": "100000",
                "GPURUN_WEBHOOK_SECRET_OLD": CANARY,
                "GPURUN_HUB_URL": hub_url,
                **{f"GPURUN_{name.upper()}": value for name, value in settings.items()},
            }
            bot = BotProcess(environment, folder / "bot.log", url, nursery=nursery)
            database = database_url or str(folder / "state" / "gpurun.db")
            world = World(github, hub, bot, image=image, url=url, database=database)
            github.hook_url = f"{url}/github"
            try:
                await bot.start()
                yield world
                await world.finish()
            finally:
                await bot.stop()
                world.engine_log.close()
                end_watchdogs(folder / "state" / "watchdog")
                for left in world.containers():
                    world._engine.remove_container(left["Id"], force=True, v=True)
