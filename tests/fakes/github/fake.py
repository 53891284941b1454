"""The fake GitHub itself. Its docs are in the package's docstring."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import httpx
import yaml
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from pydantic import SecretStr

from gpurun.adapters.clock import SystemClock
from gpurun.ports.clock import Clock
from tests.fakes.github import api, payloads, webhooks
from tests.fakes.github.gitrepo import Files, GitRepo
from tests.fakes.github.keys import app_key, pem
from tests.fakes.github.limits import Limits
from tests.fakes.github.people import Person
from tests.fakes.github.state import (
    Account,
    CheckRun,
    Comment,
    HookRecord,
    Installation,
    Issue,
    Repo,
    SeenRequest,
    SentHook,
    Token,
)
from tests.fakes.github.trouble import Trouble, Troubles

MANIFEST = Path(__file__).parents[3] / "app.yml"
IN_PROCESS_URL = "http://github.test"
OWNER = "gpurun-owner"
"""Whose App it is."""


@dataclass(eq=False)
class App:
    """The one App. Permissions and events come from the repository's own manifest."""

    id: int
    slug: str
    key: RSAPrivateKey
    webhook_secret: SecretStr
    permissions: Mapping[str, str]
    events: frozenset[str]

    @property
    def private_key(self) -> SecretStr:
        """PEM text."""
        return SecretStr(pem(self.key))


class FakeGitHub:
    """See the package's docstring."""

    def __init__(self, folder: Path, *, clock: Clock | None = None, slug: str = "gpurun", seed: int = 1) -> None:
        self.folder = folder
        self.clock: Clock = clock or SystemClock()
        self.random = random.Random(seed)
        manifest = cast("dict[str, Any]", yaml.safe_load(MANIFEST.read_text()))
        self.app = App(
            id=1_234_567,
            slug=slug,
            key=app_key(),
            webhook_secret=SecretStr("hook-secret-of-the-fake"),
            permissions=dict(manifest["default_permissions"]),
            events=frozenset(manifest["default_events"]),
        )
        # ids above 2^31 and 2^32, as GitHub's comments and checks have by now
        self._ids = itertools.count(2_900_000_001)
        self._check_ids = itertools.count(48_000_000_001)
        self.accounts: dict[str, Account] = {}
        self.repos: dict[str, Repo] = {}
        self.renamed: dict[str, Repo] = {}
        self.installations: dict[int, Installation] = {}
        self.tokens: dict[str, Token] = {}
        self.limits = Limits(self.clock)
        self.troubles = Troubles()
        self.requests: list[SeenRequest] = []
        self.queued: list[SentHook] = []
        self.sent: list[SentHook] = []
        self.records: list[HookRecord] = []
        self.records_lag_s = 0.0
        self._suites: dict[tuple[int, str], int] = {}
        self.hook_url = ""
        self.hook_transport: httpx.AsyncBaseTransport | None = None
        self.hook_down = False
        self._wake: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.asgi = api.make(self)
        self.account(OWNER)
        self.api_url = f"{IN_PROCESS_URL}/api/v3"
        self.git_url = IN_PROCESS_URL
        self.transport: httpx.AsyncBaseTransport | None = httpx.ASGITransport(app=self.asgi)

    # the world

    def account(self, login: str) -> Account:
        """Made when it is first named."""
        kind = "Bot" if login.endswith("[bot]") else "User"
        return self.accounts.setdefault(login.lower(), Account(id=next(self._ids), login=login, kind=kind))  # type: ignore[arg-type]

    def user(self, login: str) -> Person:
        """Somebody who can act."""
        return Person(self, self.account(login))

    @property
    def bot(self) -> Account:
        """Who the App's comments are by."""
        return self.account(f"{self.app.slug}[bot]")

    def create_repo(
        self, name: str, *, files: Files | None = None, private: bool = False, installed: bool = True
    ) -> Repo:
        """With one commit on `main`; `installed`: the App sees it."""
        owner = self.account(name.split("/", maxsplit=1)[0])
        git = GitRepo.create(self.folder / f"{name}.git")
        content = files or {"README.md": f"# {name}\n"}
        git.commit("main", content, message="Start", author=owner.login, at=self.clock.now(), parent=None)
        return self.add_repo(name, git, private=private, installed=installed)

    def add_repo(self, name: str, git: GitRepo, *, private: bool = False, installed: bool = True) -> Repo:
        """Over a bare repository that exists."""
        owner = self.account(name.split("/", maxsplit=1)[0])
        installation = self._installation_of(owner) if installed else None
        repo = Repo(
            id=next(self._ids),
            name=name,
            owner=owner,
            git=git,
            installation_id=installation.id if installation else 0,
            private=private,
        )
        if installation:
            installation.repos.add(name.lower())
        self.repos[name.lower()] = repo
        return repo

    def _installation_of(self, owner: Account) -> Installation:
        for installation in self.installations.values():
            if installation.account is owner:
                return installation
        made = Installation(id=next(self._ids), account=owner, permissions=self.app.permissions)
        self.installations[made.id] = made
        return made

    def new_id(self) -> int:
        return next(self._ids)

    def new_check_id(self) -> int:
        return next(self._check_ids)

    def suite_id(self, repo: Repo, sha: str) -> int:
        """All checks of the App at one commit are one suite."""
        return self._suites.setdefault((repo.id, sha), next(self._check_ids))

    # what happened

    def comments(self, on: Issue) -> list[Comment]:
        """Oldest first."""
        return list(on.comments.values())

    def checks(self, repo: Repo, *, sha: str | None = None, name: str | None = None) -> list[CheckRun]:
        """Oldest first."""
        return [
            check
            for check in repo.checks.values()
            if (sha is None or check.head_sha == sha) and (name is None or check.name == name)
        ]

    async def changed(self, *, timeout_s: float = 5.0) -> bool:
        """Returns when something here changed after the call; False when nothing did for that long."""
        with self.watching() as event:
            try:
                async with asyncio.timeout(timeout_s):
                    await event.wait()
            except TimeoutError:
                return False
        return True

    @contextmanager
    def watching(self) -> Iterator[asyncio.Event]:
        """The event is set by every change; clear it, look, wait."""
        event = asyncio.Event()
        entry = (asyncio.get_running_loop(), event)
        self._wake.append(entry)
        try:
            yield event
        finally:
            self._wake.remove(entry)

    def touch(self) -> None:
        """Wakes whoever waits in `changed`."""
        for loop, event in list(self._wake):
            loop.call_soon_threadsafe(event.set)

    # deliveries

    def queue(self, event: str, action: str, repo: Repo, payload: Mapping[str, Any]) -> None:
        """A delivery, if the App is installed there and asked for such events."""
        installation = self.installations.get(repo.installation_id)
        if installation is None or installation.suspended or event not in self.app.events:
            return
        self.queued.append(webhooks.make(self, event, action, repo, installation, payload))
        self.touch()

    async def deliver(self) -> list[SentHook]:
        """Sends what is queued, in order, also what the sending itself causes. Returns it."""
        done: list[SentHook] = []
        while self.queued:
            hook = self.queued.pop(0)
            self.sent.append(hook)
            done.append(hook)
            await webhooks.send(self, hook)
        return done

    async def redeliver(self, hook: SentHook) -> int:
        """The same GUID and bytes again. Returns the status."""
        return await webhooks.send(self, hook)

    def replace_hook_secret(self, secret: str) -> None:
        self.app.webhook_secret = SecretStr(secret)

    # trouble

    def fail_next(
        self,
        method: str,
        path: str,
        *,
        status: int,
        after_doing: bool = False,
        headers: Mapping[str, str] | None = None,
        body: object = None,
        times: int = 1,
    ) -> None:
        """The next `times` requests to it are answered like that; `after_doing`: and yet they take effect."""
        self.troubles.add(
            Trouble(method, path, status=status, after_doing=after_doing, headers=headers or {}, body=body, times=times)
        )

    def time_out_next(self, method: str, path: str, *, after_doing: bool = False, times: int = 1) -> None:
        """The next `times` requests to it get no answer."""
        self.troubles.add(Trouble(method, path, status=0, after_doing=after_doing, times=times))

    def cut_next(self, method: str, path: str, *, times: int = 1) -> None:
        """The next `times` requests to it take effect, and their answers break off in the middle."""
        self.troubles.add(Trouble(method, path, cut=True, after_doing=True, times=times))

    def slow(self, method: str, path: str, *, seconds: float, times: int = 1) -> None:
        """The next `times` answers take so long by the injected clock."""
        self.troubles.add(Trouble(method, path, slow_s=seconds, times=times))

    def exhaust_rate_limit(self, *, reset_in_s: float) -> None:
        """Every call of an installation is refused until then."""
        self.limits.exhaust(list(self.installations), self.clock.now() + timedelta(seconds=reset_in_s))

    def rename(self, repo: Repo, name: str) -> None:
        """The API redirects from the old name."""
        old, repo.name = repo.name, name
        self.repos[name.lower()] = self.repos.pop(old.lower())
        self.renamed[old.lower()] = repo
        reach = self.installations[repo.installation_id].repos
        reach.remove(old.lower())
        reach.add(name.lower())

    def suspend(self, repo: Repo, *, told: bool = True) -> None:
        """The owner suspends the App. `told`: the delivery that says so is not lost."""
        self._suspended(repo, "suspend", told=told)

    def unsuspend(self, repo: Repo, *, told: bool = True) -> None:
        """And lets it in again."""
        self._suspended(repo, "unsuspend", told=told)

    def _suspended(self, repo: Repo, action: str, *, told: bool) -> None:
        installation = self.installations[repo.installation_id]
        installation.suspended = action == "suspend"
        if told:  # sent to a suspended App too, and to one that did not ask for it
            payload = {"action": action, "sender": payloads.user(self, installation.account)}
            self.queued.append(webhooks.make(self, "installation", action, None, installation, payload))
            self.touch()

    def revoke_tokens(self) -> None:
        """Those that exist answer 401 from now on."""
        self.tokens.clear()
