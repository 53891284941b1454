"""Rows, parts that keep state, and the words of the agent, for the tests of the routes."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from pydantic import SecretStr

from gpurun.adapters.secrets import MemorySecrets
from gpurun.adapters.vault import GivenVault
from gpurun.domain.errors import PinNotFound, Transient
from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import CommitSha, ImageRef, JobName, RepoName, Revision, TreeSha
from gpurun.domain.offer import Offer
from gpurun.domain.plan import ModelFile, ModelPin, Plan
from gpurun.domain.run import Attempt, AttemptState, Run, RunState
from gpurun.domain.source import Fetched, GitTag
from gpurun.domain.stream import ArtifactLimits
from gpurun.http.maskers import Maskers
from gpurun.http.services import HttpServices
from gpurun.http.webhook import sign
from gpurun.ports.store import Kind
from gpurun.run import tokens
from gpurun_agent import protocol
from tests.fakes.parts import FakeLayers

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
INSTALL_SECRET = b"install secret of the tests"
WEBHOOK_SECRET = "It's a Secret to Everybody"
RUN_ID = "01kdxq4c00000000000000000r"
ATTEMPT_ID = "01kdxq4c00000000000000000a"
READ_KEY = "read-key-of-the-run"
WEIGHTS = bytes(range(256)) * 4096

REPO = RepoRef(installation_id=7, name=RepoName("octo/app"), id=9)
FILE = ModelFile(path="sub/model.safetensors", size=len(WEIGHTS), sha256=hashlib.sha256(WEIGHTS).hexdigest(), etag="e1")
CONFIG = ModelFile(path="config.json", size=2, sha256=hashlib.sha256(b"{}").hexdigest(), etag="e2")
PLAN = Plan(
    repo=REPO.name,
    commit=CommitSha("a" * 40),
    tree=TreeSha("b" * 40),
    job=JobName("smoke"),
    image=ImageRef("ghcr.io/octo/app@sha256:" + "c" * 64),
    setup="pip install -e .",
    run="python -m app.smoke\necho done",
    workdir="pkg",
    env=(("EMPTY", ""), ("SEED", "0")),
    models=(ModelPin(id="octo/tiny", revision=Revision("d" * 40), files=(FILE, CONFIG), target="/weights"),),
    artifacts=("out/*.json",),
)


def a_run(**changes: Any) -> Run:
    run = Run(
        id=RUN_ID, repo=REPO, pr=5, job=PLAN.job, sha=PLAN.commit, who="alice", why="comment", comment_id=3,
        created_at=NOW, read_key=READ_KEY, config_text="version: 1\n", state=RunState.ACTIVE, state_since=NOW,
        due_at=None, plan=PLAN, plan_digest="sha256:" + "e" * 64, attempts=1,
    )  # fmt: skip
    return replace(run, **changes)


def an_attempt(**changes: Any) -> Attempt:
    attempt = Attempt(
        id=ATTEMPT_ID, run_id=RUN_ID, number=1,
        offer=Offer(provider="docker", id="local", label="local Docker", usd_per_hour_micro=0, declared=True),
        name=f"gpurun-install0-{ATTEMPT_ID}-abc",
        claim_sha256=tokens.token_sha256(tokens.claim_token(INSTALL_SECRET, ATTEMPT_ID)),
        created_at=NOW, hard_deadline=NOW + timedelta(hours=1), state=AttemptState.BOOTING, state_since=NOW,
        due_at=None, create_sent_at=NOW,
    )  # fmt: skip
    return replace(attempt, **changes)


@dataclass
class TarGit:
    """A mirror with one archive; `broken` ends it with an error."""

    pieces: list[bytes] = field(default_factory=lambda: [b"tar " * 100, b"more " * 100, b"end"])
    broken: Transient | PinNotFound | None = None
    asked: list[tuple[str, str]] = field(default_factory=list)

    async def fetch(
        self, source: object, repo: str, sha: str, *, skip: object = (), get: object = (), merge_of: object = None
    ) -> Fetched:
        raise AssertionError("nothing is fetched while an agent waits")

    async def fetch_lfs(self, source: object, repo: str, sha: str) -> None:
        raise AssertionError("nothing is fetched while an agent waits")

    async def fetch_history(self, source: object, repo: str, sha: str) -> tuple[GitTag, ...]:
        raise AssertionError("nothing is fetched while an agent waits")

    async def git_folder(self, repo: str, sha: str, tags: object, *, lfs: bool = False) -> AsyncIterator[bytes]:
        self.asked.append((f"{repo}/.git", sha))
        yield b"a git folder"

    async def archive(self, repo: str, sha: str, *, submodules: object = (), lfs: bool = False) -> AsyncIterator[bytes]:
        self.asked.append((repo, sha))
        for piece in self.pieces:
            yield piece
        if self.broken:
            raise self.broken


@dataclass
class OneModelHub:
    """A hub that serves `files` and finds out at the end when `files` are not what the pin says."""

    files: dict[str, bytes] = field(default_factory=lambda: {FILE.path: WEIGHTS, CONFIG.path: b"{}"})
    piece_bytes: int = 100_000
    url: str = ""
    """Where the store has every file."""
    asked_for_url: list[str] = field(default_factory=list)

    async def resolve(self, spec: object) -> ModelPin:
        raise AssertionError("nothing is resolved while an agent waits")

    async def signed_url(self, pin: ModelPin, file: ModelFile) -> SecretStr | None:
        self.asked_for_url.append(file.path)
        return SecretStr(self.url) if self.url else None

    async def open(self, pin: ModelPin, file: ModelFile, *, offset: int = 0) -> AsyncIterator[bytes]:
        data = self.files[file.path]
        for at in range(offset, len(data), self.piece_bytes):
            yield data[at : at + self.piece_bytes]
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise PinNotFound(f"{file.path} of {pin.id} is not what its sha256 says.")


def services_over(store: Any, clock: Any, blobs: Any, *, secrets: Any = None, **changes: Any) -> HttpServices:
    secrets = secrets or MemorySecrets()
    services = HttpServices(
        store=store, git=TarGit(), hub=OneModelHub(), layers=FakeLayers(), blobs=blobs, clock=clock,
        install_secret=INSTALL_SECRET,
        maskers=Maskers(secrets, INSTALL_SECRET), vault=GivenVault({}, secrets),
        webhook_secrets=(SecretStr(WEBHOOK_SECRET), SecretStr("")), public_url="http://gpurun.test",
        log_quota_bytes=1_000_000, artifacts=ArtifactLimits(files=8, file_bytes=8000, total_bytes=10_000),
    )  # fmt: skip
    return replace(services, **changes)


@dataclass
class World:
    """The application, spoken to as GitHub, as an agent and as a person."""

    services: HttpServices
    client: httpx.AsyncClient
    token: str = ""

    @property
    def store(self) -> Any:
        return self.services.store

    async def add(self, run: Run | None = None, attempt: Attempt | None = None) -> None:
        def write(tx: Any) -> None:
            tx.add_run(run or a_run())
            tx.add_attempt(attempt or an_attempt())

        await self.store.write(write)

    async def attempt(self) -> Attempt:
        found: Attempt = await self.store.read(lambda tx: tx.attempt(ATTEMPT_ID))
        return found

    async def log(self) -> bytes:
        data: bytes = await self.store.read(
            lambda tx: tx.read_stream(ATTEMPT_ID, "log", offset=0, max_bytes=10_000_000)
        )
        return data

    async def audited(self) -> list[str]:
        entries = await self.store.read(lambda tx: tx.audit_of(f"attempt:{ATTEMPT_ID}"))
        return [entry.kind for entry in entries]

    # GitHub

    async def deliver(self, body: bytes, *, event: str = "issue_comment", **headers: str | None) -> httpx.Response:
        """A signed delivery; a header given as None is left out."""
        sent = {
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": "7b1e0000-0000-4000-8000-000000000001",
            "Content-Type": "application/json",
            "X-Hub-Signature-256": sign(WEBHOOK_SECRET.encode(), body).decode(),
        }
        changed = sent | {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(
            "/github", content=body, headers={name: value for name, value in changed.items() if value is not None}
        )

    async def inbox(self) -> list[Any]:
        """Rows that can be worked on, oldest first: of each pull request the first."""

        def read(tx: Any) -> list[Any]:
            leases = tx.claim(Kind.INBOX, limit=100, token="test", length=timedelta(seconds=1))
            return [tx.inbox(lease.id).delivery for lease in leases]

        rows: list[Any] = await self.store.write(read)
        return rows

    # an agent

    async def claim(self, boot_id: str = "boot-1", **more: str) -> httpx.Response:
        answer = await self.post(
            "claim", [("boot_id", boot_id), *more.items()], token=tokens.claim_token(INSTALL_SECRET, ATTEMPT_ID)
        )
        if answer.status_code == 200:
            self.token = records(answer)["token"]
        return answer

    async def post(self, word: str, fields: list[tuple[str, Any]], *, token: str | None = None) -> httpx.Response:
        return await self.client.post(f"/agent/v1/{word}", content=protocol.encode(fields), headers=self.bearer(token))

    async def append(self, offset: int, data: bytes, *, name: str = "log", end: bool = False) -> httpx.Response:
        query = f"offset={offset}" + ("&end=1" if end else "")
        return await self.client.put(f"/agent/v1/streams/{name}?{query}", content=data, headers=self.bearer())

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.client.get(f"/agent/v1/{path}", headers=self.bearer() | headers)

    async def collect(self, path: str, data: bytes, *, offset: int = 0, whole: bytes | None = None) -> httpx.Response:
        whole = data if whole is None else whole
        query = f"offset={offset}&size={len(whole)}&sha256={hashlib.sha256(whole).hexdigest()}"
        return await self.client.put(f"/agent/v1/artifacts/{path}?{query}", content=data, headers=self.bearer())

    async def install(self, text: bytes) -> httpx.Response:
        return await self.client.put("/agent/v1/installed", content=text, headers=self.bearer())

    def bearer(self, token: str | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token if token is None else token}"}

    # a person

    async def page(self, rest: str = "", *, key: str = READ_KEY, query: str = "") -> httpx.Response:
        return await self.client.get(f"/runs/{RUN_ID}{rest}?key={key}{query}")


def records(answer: httpx.Response) -> dict[str, str]:
    return {name: value.decode() for name, value in protocol.decode(answer.content)}


def all_records(answer: httpx.Response) -> list[tuple[str, str]]:
    return [(name, value.decode()) for name, value in protocol.decode(answer.content)]
