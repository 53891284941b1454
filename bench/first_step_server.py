"""`python -m bench.first_step_server PORT FOLDER`: a whole `gpurun serve` on a forge in its own process.

The forge answers at once. It notes in FOLDER/steps when it is first asked about a delivery (`inbox NUMBER SECONDS`) and
about a run (`run NUMBER SECONDS`, monotonic); then it refuses the source, so that every run ends there.
"""

from __future__ import annotations

import sys
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import anyio
import uvicorn
from pydantic import SecretStr

from bench.deliveries import SECRET
from gpurun import wiring
from gpurun.cli.logs import log_trouble_only
from gpurun.cli.serve import web_config
from gpurun.domain.errors import ForgeRefused
from gpurun.domain.forge import Comment, GitSource, Permission, PullRequest, RepoRef
from gpurun.domain.ids import BranchName, CommitSha
from gpurun.http.server import build_app
from gpurun.settings import Settings
from tests.fakes.parts import SourceOnlyForge

CONFIG = f"version: 1\njobs:\n  smoke:\n    image: ghcr.io/octo/app@sha256:{'1' * 64}\n    run: echo hi\n".encode()


class QuickForge(SourceOnlyForge):
    """`ports.forge.Forge`. Repository, pull request and comment of one command have one number."""

    def __init__(self, steps: Path) -> None:
        super().__init__()
        self._steps = steps.open("w", buffering=1)
        self._ids = iter(range(1, 1 << 62))

    async def comment(self, repo: RepoRef, comment_id: int) -> Comment:
        self._note("inbox", comment_id)
        at = datetime.now(UTC)
        return Comment(
            id=comment_id,
            number=comment_id,
            author="octocat",
            author_is_bot=False,
            body="/gpurun smoke",
            created_at=at,
            updated_at=at,
        )

    async def pull_request(self, repo: RepoRef, number: int) -> PullRequest:
        sha = CommitSha(f"{number:040x}")
        return PullRequest(
            number=number,
            open=True,
            draft=False,
            head_sha=sha,
            head_repo=repo.name,
            base_sha=sha,
            base_ref="main",
            author="octocat",
            title="Faster",
            default_branch=BranchName("main"),
        )

    async def permission(self, repo: RepoRef, login: str) -> Permission:
        return Permission(push=True, maintain=False, admin=False)

    async def read_file(self, repo: RepoRef, at: CommitSha | BranchName, path: str, *, max_bytes: int) -> bytes | None:
        return CONFIG

    async def git_source(self, repo: RepoRef) -> GitSource:
        self._note("run", int(repo.name.rpartition("-")[2]))
        raise ForgeRefused("no source here", status=404)

    async def react(self, repo: RepoRef, comment_id: int, content: str) -> int:
        return next(self._ids)

    async def create_comment(self, repo: RepoRef, pr: int, body: str) -> int:
        return next(self._ids)

    async def update_comment(self, repo: RepoRef, comment_id: int, body: str) -> None: ...

    async def create_check(self, repo: RepoRef, sha: CommitSha, check: object) -> int:
        return next(self._ids)

    async def update_check(self, repo: RepoRef, check_id: int, check: object) -> None: ...

    def _note(self, kind: str, number: int) -> None:
        self._steps.write(f"{kind} {number} {time.monotonic():.6f}\n")


async def serve(port: int, folder: Path) -> None:
    """Until it is killed."""
    settings = Settings(state_dir=folder / "state", port=port, webhook_secret=SecretStr(SECRET))
    async with AsyncExitStack() as stack:
        folders = wiring.server_folders(settings).made()
        house = await wiring.open_house(stack, settings, folders, QuickForge(folder / "steps"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(house.live, anyio.Event())
            await uvicorn.Server(web_config(build_app(house.http), settings)).serve()


if __name__ == "__main__":
    log_trouble_only()
    anyio.run(serve, int(sys.argv[1]), Path(sys.argv[2]), backend_options={"use_uvloop": True})
