"""`ports.forge.Forge` on GitHub and GitHub Enterprise Server."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import quote

import anyio
import httpx
import msgspec
from githubkit.exception import GitHubException
from pydantic import SecretStr

from gpurun.adapters.github import answers, checks, client, deliveries
from gpurun.adapters.github.errors import innermost, is_refused, translate
from gpurun.adapters.github.permissions import SOURCE_PERMISSIONS
from gpurun.adapters.github.submodules import SubmodulePlaces
from gpurun.adapters.github.tokens import AppAuth, InstallationAuth, InstallationToken, Tokens
from gpurun.adapters.github.trees import Trees, end_of
from gpurun.domain.errors import Bug, ForgeRefused
from gpurun.domain.forge import (
    ChangedFiles,
    Check,
    CheckSeen,
    CheckStatus,
    Comment,
    GitSource,
    Permission,
    PullRequest,
    RepoFile,
    RepoRef,
    Sent,
)
from gpurun.domain.ids import BranchName, CommitSha
from gpurun.domain.source import Gitlink
from gpurun.ports.clock import Clock

PAGE = 100
PAGES_MAX = 30
"""GitHub itself lists no more files of a pull request."""
AT_ONCE = 8
"""Files that are looked for beside each other."""


class GitHubForge:
    """One App at one GitHub. Every address comes from `api_url` and `git_url`."""

    def __init__(
        self,
        *,
        app_id: int,
        private_key: SecretStr,
        api_url: str,
        git_url: str,
        clock: Clock,
        transport: httpx.AsyncBaseTransport | None = None,
        submodule_hosts: frozenset[str] = frozenset(),
    ) -> None:
        """`submodule_hosts`: from which submodules come too, by https and without a credential."""
        self._app_id = app_id
        self._api_url = api_url
        self._git_url = git_url.rstrip("/")
        self._clock = clock
        self._transport = client.SharedTransport(transport or client.open_transport(api_url))
        self._auth = AppAuth(app_id, private_key, clock)
        app = client.make(self._auth, api_url=api_url, transport=self._transport)
        self._app = client.Calls(app)
        self._tokens = Tokens(app, clock)
        self._submodules = SubmodulePlaces(self._tokens, self._git_url, submodule_hosts)
        self._installations: dict[int, client.Calls] = {}
        self._bot_login = ""

    async def close(self) -> None:
        """Lets the connections go."""
        await self._transport.close()

    def require_key(self) -> None:
        """Says at once, without a call, that the private key is none. Raises: ForgeRefused 401."""
        self._auth.json_web_token()

    async def bot_login(self) -> str:
        """`<slug>[bot]`, who our comments are by. Asked once, with the App's own key: also a check of the settings."""
        if not self._bot_login:
            async with self._translated():
                app = await self._app.get("/app", answers.App)
                self._bot_login = f"{app.slug}[bot]"
        return self._bot_login

    async def pull_request(self, repo: RepoRef, number: int) -> PullRequest:
        async with self._calls(repo) as calls:
            pull = await calls.get(f"/repos/{repo.name}/pulls/{number}", answers.Pull)
        return PullRequest(
            number=pull.number,
            open=pull.state == "open",
            draft=pull.draft,
            head_sha=CommitSha(pull.head.sha),
            head_repo=pull.head.repo.full_name if pull.head.repo else None,
            base_sha=CommitSha(pull.base.sha),
            base_ref=pull.base.ref,
            author=pull.user.login if pull.user else answers.GHOST,
            author_is_bot=pull.user is not None and pull.user.type == "Bot",
            title=pull.title,
            default_branch=BranchName(pull.base.repo.default_branch),
            mergeable=pull.mergeable,
            merge_sha=CommitSha(pull.merge_commit_sha) if pull.merge_commit_sha else None,
        )

    async def comment(self, repo: RepoRef, comment_id: int) -> Comment:
        async with self._calls(repo) as calls:
            found = await calls.get(f"/repos/{repo.name}/issues/comments/{comment_id}", answers.Comment)
        return Comment(
            id=found.id,
            number=found.number,
            author=found.user.login if found.user else answers.GHOST,
            author_is_bot=found.user is not None and found.user.type == "Bot",
            body=found.body or "",
            created_at=found.created_at,
            updated_at=found.updated_at,
        )

    async def permission(self, repo: RepoRef, login: str) -> Permission:
        path = f"/repos/{repo.name}/collaborators/{quote(login, safe='')}/permission"
        rights = answers.Rights()
        async with self._calls(repo) as calls:
            try:
                found = await calls.get(path, answers.CollaboratorPermission)
                rights = found.user.permissions if found.user else rights
            except GitHubException as exc:
                # "not a user" and "no such repository" both mean: no right
                if not is_refused(exc, 404, now=self._clock.now()):
                    raise
        return Permission(push=rights.push, maintain=rights.maintain, admin=rights.admin)

    async def read_file(self, repo: RepoRef, at: CommitSha | BranchName, path: str, *, max_bytes: int) -> bytes | None:
        async with self._calls(repo) as calls:
            commit = at if isinstance(at, CommitSha) else await end_of(calls, repo.name, at)
            return await Trees(calls, repo.name, commit).read(path, max_bytes=max_bytes)

    async def read_files(
        self, repo: RepoRef, at: CommitSha | BranchName, paths: Sequence[str], *, max_bytes: int
    ) -> tuple[RepoFile, ...]:
        async with self._calls(repo) as calls:
            trees = Trees(calls, repo.name, at if isinstance(at, CommitSha) else await end_of(calls, repo.name, at))
            found: dict[str, RepoFile | None] = {}

            async def find(path: str) -> None:
                async with limit:
                    found[path] = await trees.file(path, max_bytes=max_bytes)

            limit = anyio.CapacityLimiter(AT_ONCE)
            try:
                async with anyio.create_task_group() as tasks:
                    for path in paths:
                        tasks.start_soon(find, path)
            except BaseExceptionGroup as group:  # one is told, as for one file
                raise group.exceptions[0] from None
            return tuple(file for path in paths if (file := found[path]) is not None)

    async def changed_files(self, repo: RepoRef, number: int) -> ChangedFiles:
        """GitHub lists at most 3,000.

        Source: https://docs.github.com/en/rest/pulls/pulls#list-pull-requests-files, read 2026-12-01.
        """
        path = f"/repos/{repo.name}/pulls/{number}/files"
        paths: list[str] = []
        async with self._calls(repo) as calls:
            for page in range(1, PAGES_MAX + 1):
                found = await calls.get(path, list[answers.ChangedFile], {"per_page": PAGE, "page": page})
                paths += [path for file in found for path in (file.previous_filename, file.filename) if path]
                if len(found) < PAGE:
                    return ChangedFiles(paths=tuple(dict.fromkeys(paths)), all_there=True)
        return ChangedFiles(paths=tuple(dict.fromkeys(paths)), all_there=False)

    async def git_source(self, repo: RepoRef) -> GitSource:
        async with self._translated():
            token = await self._tokens.narrowed(repo.installation_id, repo_id=repo.id, permissions=SOURCE_PERMISSIONS)
        return _with_token(f"{self._git_url}/{repo.name}.git", token)

    async def submodule_source(self, repo: RepoRef, link: Gitlink, *, reader: str) -> GitSource:
        place = self._submodules.place(repo, link)
        if place.repo is None:
            return GitSource(url=place.url)
        async with self._calls(repo) as calls:
            now = self._clock.now()
            key = await self._submodules.key(calls, repo, link, place.repo, reader=reader, now=now)
        return replace(_with_token(place.url, key.token), is_proved=key.is_proof)

    async def react(self, repo: RepoRef, comment_id: int, content: str) -> int:
        path = f"/repos/{repo.name}/issues/comments/{comment_id}/reactions"
        async with self._calls(repo) as calls:
            return (await calls.post(path, {"content": content}, answers.Made)).id

    async def create_comment(self, repo: RepoRef, pr: int, body: str) -> int:
        async with self._calls(repo) as calls:
            return (await calls.post(f"/repos/{repo.name}/issues/{pr}/comments", {"body": body}, answers.Made)).id

    async def update_comment(self, repo: RepoRef, comment_id: int, body: str) -> None:
        async with self._calls(repo) as calls:
            await calls.patch(f"/repos/{repo.name}/issues/comments/{comment_id}", {"body": body}, answers.Made)

    async def find_comment(self, repo: RepoRef, pr: int, *, marker: str, since: datetime) -> int | None:
        login = await self.bot_login()
        path = f"/repos/{repo.name}/issues/{pr}/comments"
        params: dict[str, client.Param] = {"since": _utc(since), "per_page": PAGE}
        async with self._calls(repo) as calls:
            for page in range(1, PAGES_MAX + 1):
                comments = await calls.get(path, list[answers.Comment], params | {"page": page})
                for found in comments:
                    if found.user and found.user.login == login and (found.body or "").rstrip().endswith(marker):
                        return found.id
                if len(comments) < PAGE:
                    return None
        raise ForgeRefused(f"{repo.name}#{pr} has too many comments since {_utc(since)} to look at.", status=422)

    async def create_check(self, repo: RepoRef, sha: CommitSha, check: Check) -> int:
        first, *others = checks.bodies(check)
        async with self._calls(repo) as calls:
            made = await calls.post(f"/repos/{repo.name}/check-runs", {**first, "head_sha": sha}, answers.Made)
            for body in others:
                await calls.patch(f"/repos/{repo.name}/check-runs/{made.id}", body, answers.Made)
        return made.id

    async def update_check(self, repo: RepoRef, check_id: int, check: Check) -> bool:
        """Reports say that GitHub takes the texts and leaves a completed check run completed, without a word.

        Source: https://github.com/Mergifyio/mergify/pull/1989, https://github.com/lyft/atlantis/pull/265 and
        https://github.com/taskcluster/taskcluster/issues/5085, read 2026-12-02.
        """
        path = f"/repos/{repo.name}/check-runs/{check_id}"
        shown = ""
        async with self._calls(repo) as calls:
            there = 0
            if check.annotations:
                # a call whose answer was lost may have added them
                there = (await calls.get(path, answers.CheckRun)).output.annotations_count
            for body in checks.bodies(check, annotations_there=there):
                shown = (await calls.patch(path, body, answers.CheckRun)).status
        return check.status is CheckStatus.COMPLETED or shown != CheckStatus.COMPLETED

    async def find_check(self, repo: RepoRef, sha: CommitSha, *, name: str, external_id: str) -> int | None:
        path = f"/repos/{repo.name}/commits/{sha}/check-runs"
        params: dict[str, client.Param] = {"check_name": name, "filter": "all", "per_page": PAGE}
        ids: list[int] = []
        async with self._calls(repo) as calls:
            for page in range(1, PAGES_MAX + 1):
                found = (await calls.get(path, answers.CheckRuns, params | {"page": page})).check_runs
                ids += [
                    one.id
                    for one in found
                    if one.external_id == external_id and one.app is not None and one.app.id == self._app_id
                ]
                if len(found) < PAGE:
                    return max(ids, default=None)
        raise ForgeRefused(f"{repo.name} has too many checks named {name!r} at {sha} to look at.", status=422)

    async def read_check(self, repo: RepoRef, check_id: int) -> CheckSeen:
        async with self._calls(repo) as calls:
            found = await calls.get(f"/repos/{repo.name}/check-runs/{check_id}", answers.CheckRun)
        return CheckSeen(
            id=found.id,
            name=found.name,
            external_id=found.external_id or "",
            head_sha=CommitSha(found.head_sha),
            ours=found.app is not None and found.app.id == self._app_id,
        )

    async def delivery(self, guid: str, *, since: datetime) -> Sent | None:
        async with self._translated():
            return await deliveries.find(self._app, guid, since=since)

    @asynccontextmanager
    async def _calls(self, repo: RepoRef) -> AsyncIterator[client.Calls]:
        """Calls as the repository's installation, with a limit on time and our own errors."""
        calls = self._installations.get(repo.installation_id)
        if calls is None:
            auth = InstallationAuth(self._tokens, repo.installation_id)
            calls = client.Calls(client.make(auth, api_url=self._api_url, transport=self._transport))
            self._installations[repo.installation_id] = calls
        async with self._translated():
            yield calls

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        try:
            with anyio.fail_after(client.CALL_LIMIT_S):
                yield
        except (GitHubException, msgspec.MsgspecError, TimeoutError) as exc:
            error = translate(exc, now=self._clock.now())
            # an error of ours that the client had only wrapped must not become its own cause
            raise error from (None if error is innermost(exc) else exc)


def _with_token(url: str, token: InstallationToken) -> GitSource:
    login = base64.b64encode(f"x-access-token:{token.value.get_secret_value()}".encode()).decode()
    return GitSource(url=url, authorization=SecretStr(f"Basic {login}"))


def _utc(at: datetime) -> str:
    if at.tzinfo is None:
        raise Bug("a time without a zone")
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
